// A project of a user, outside of this repository, with the packed packages in its node_modules and nothing else but
// the packages that it names.

import { spawn, spawnSync } from 'node:child_process'
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { onTestFinished } from 'vitest'
import { packages as published, root } from './repository.ts'

export interface PackedProject {
  readonly folder: string
  /** Writes a file and returns its path. */
  write(path: string, text: string): string
}

let tarballs: ReadonlyMap<string, string> | undefined

const MOST_TRIES = 5

/** Packs the build as it is, once for each test file. The README is not part of it: `prepack` would write it. */
function packed(): ReadonlyMap<string, string> {
  if (tarballs !== undefined) return tarballs
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-tarball-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  tarballs = new Map(
    published.map((path) => {
      const cwd = join(root, path)
      const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder]
      const { name } = JSON.parse(readFileSync(join(cwd, 'package.json'), 'utf8'))
      for (let tries = 1; ; tries++) {
        const { status, stdout, stderr } = spawnSync('npm', args, { cwd, encoding: 'utf8' })
        if (status === 0) return [name, join(folder, stdout.trim())]
        // Another test writes the documents into the package (`prepack`), and a file that was listed is gone for a moment.
        if (tries === MOST_TRIES) throw new Error(`npm pack failed: ${stderr}`)
      }
    }),
  )
  return tarballs
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
  for (const [name, tarball] of packed()) {
    const target = join(folder, 'node_modules', name)
    mkdirSync(target, { recursive: true })
    const { status, stderr } = spawnSync('tar', ['-xzf', tarball, '-C', target, '--strip-components=1'])
    if (status !== 0) throw new Error(`tar failed: ${stderr}`)
  }
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
  // The settings of the tests are not the program's.
  const { NODE_OPTIONS: _, NODE_COMPILE_CACHE: __, ...inherited } = process.env
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
