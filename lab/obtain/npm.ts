// A server that is a package of npm, in a folder of its own: too large for everybody's `npm ci`.

import { spawnSync } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { replace, writeProgram } from './unpacking.ts'

/** Installs it as `<into>/<name>`, with its programs in `<into>/bin`. */
export function installFromNpm(
  wanted: string,
  into: string,
  name: string,
  programs: readonly string[],
): void {
  installPackage(wanted, join(into, name))
  for (const program of programs) {
    // Last of all, so that what is found is whole.
    writeProgram(
      join(into, 'bin', program),
      `exec node "$(dirname "$(readlink -f "$0")")/../${name}/node_modules/.bin/${program}" "$@"`,
    )
  }
}

/** Installs a package of npm as a folder of its own. Its install scripts are not run. */
export function installPackage(wanted: string, target: string): void {
  const part = `${target}.part`
  rmSync(part, { recursive: true, force: true })
  mkdirSync(part, { recursive: true })
  writeFileSync(join(part, 'package.json'), '{ "private": true }\n')
  const quietly = ['--no-audit', '--no-fund', '--omit=dev', '--ignore-scripts', '--loglevel=error']
  const { status, stderr, error } = spawnSync('npm', ['install', ...quietly, '--prefix', part, wanted], {
    cwd: part,
    encoding: 'utf8',
  })
  if (error || status !== 0)
    throw new Error(
      `npm install ${wanted}: ${error?.message ?? stderr.trim().split('\n').slice(-5).join(' / ')}`,
    )
  replace(part, target)
}
