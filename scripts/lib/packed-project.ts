// A project of a user, outside of this repository, with the packed library in its node_modules and nothing else but
// the packages that it names.

import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { onTestFinished } from 'vitest'
import { root } from './repository.ts'

export interface PackedProject {
  readonly folder: string
  /** Writes a file and returns its path. */
  write(path: string, text: string): string
}

let tarball: string | undefined

/** Packs the build as it is, once for each test file. The README is not part of it: `prepack` would write it. */
function packed(): string {
  if (tarball !== undefined) return tarball
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-tarball-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const library = join(root, 'packages/holdfast')
  const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder]
  const { status, stdout, stderr } = spawnSync('npm', args, { cwd: library, encoding: 'utf8' })
  if (status !== 0) throw new Error(`npm pack failed: ${stderr}`)
  tarball = join(folder, stdout.trim())
  return tarball
}

/** Removed when the test is over. `packages` are those of this repository's node_modules that the project has as well. */
export function packedProject({ packages = [] }: { packages?: readonly string[] } = {}): PackedProject {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-project-')))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const write = (path: string, text: string) => {
    const file = join(folder, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
    return file
  }
  write('package.json', JSON.stringify({ name: 'project', private: true, type: 'module' }))
  const library = join(folder, 'node_modules/holdfast')
  mkdirSync(library, { recursive: true })
  const { status, stderr } = spawnSync('tar', ['-xzf', packed(), '-C', library, '--strip-components=1'])
  if (status !== 0) throw new Error(`tar failed: ${stderr}`)
  for (const name of packages) {
    mkdirSync(dirname(join(folder, 'node_modules', name)), { recursive: true })
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name))
  }
  return { folder, write }
}

export interface Finished {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a program to its end; the event loop of the test goes on meanwhile. */
export function runProgram(
  command: string,
  args: readonly string[],
  { cwd, env = {} }: { cwd: string; env?: Record<string, string> },
): Promise<Finished> {
  const { promise, resolve, reject } = Promise.withResolvers<Finished>()
  // Vitest's own settings are not the program's.
  const { NODE_OPTIONS: _, ...inherited } = process.env
  const child = spawn(command, args, {
    cwd,
    env: { ...inherited, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  child.on('error', reject)
  child.on('close', (status) => resolve({ status, stdout, stderr }))
  onTestFinished(() => void child.kill('SIGKILL'))
  return promise
}
