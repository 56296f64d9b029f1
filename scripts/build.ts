// Compiles the library, then removes what an earlier build left behind for sources that are gone. The folder
// is never emptied first, so that a program that runs from the old build meanwhile keeps its files.

import { spawnSync } from 'node:child_process'
import { readdirSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { root, tsc } from './lib/repository.ts'

const library = join(root, 'packages/holdfast')
const run = spawnSync(
  process.execPath,
  [tsc, '-p', join(library, 'tsconfig.build.json'), '--listEmittedFiles', '--pretty', 'false'],
  { encoding: 'utf8', cwd: root },
)

const marker = 'TSFILE: '
const lines = run.stdout.split('\n')
const emitted = new Set(
  lines
    .filter((line) => line.startsWith(marker))
    .map((line) => resolve(root, line.slice(marker.length).trim())),
)
const rest = lines.filter((line) => !line.startsWith(marker)).join('\n')
if (run.status !== 0) {
  process.stderr.write(rest + run.stderr)
  process.exit(run.status ?? 1)
}

const dist = join(library, 'dist')
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name)
  if (entry.isFile() && !emitted.has(path)) rmSync(path)
}
console.error(`build: ${emitted.size} files in packages/holdfast/dist`)
