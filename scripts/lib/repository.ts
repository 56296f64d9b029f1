// Where things are in this repository. Tools are called by their own files and not through
// node_modules/.bin, because two compilers are installed and both would like to be called `tsc`.

import { readdirSync } from 'node:fs'
import { join, relative, resolve, sep } from 'node:path'

export const root = resolve(import.meta.dirname, '../..')

export const libraryPath = 'packages/holdfast'
export const library = join(root, libraryPath)
/** The packages that are published, as paths from the root. The first is the library: layers, backends and recipes are its. */
export const packages: readonly string[] = [libraryPath]
/** A private package, which is bundled into the library as its `bin`. */
export const commandLinePath = 'packages/cli'
/** All packages that have sources of ours. */
export const sourcePackages: readonly string[] = [...packages, commandLinePath]

export const tsc = join(root, 'node_modules/typescript/bin/tsc')
export const vitest = join(root, 'node_modules/vitest/vitest.mjs')
export const biome = join(root, 'node_modules/@biomejs/biome/bin/biome')

/** Files that the checks write while they run; ignored by git. */
export const cache = join(root, '.cache')
export const testReport = join(cache, 'test-report.json')

/** All files below a folder, sorted, as absolute paths; none if the folder does not exist. */
export function filesUnder(folder: string, accept: (path: string) => boolean): string[] {
  let entries: ReturnType<typeof readEntries>
  try {
    entries = readEntries(folder)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !path.includes(`${sep}node_modules${sep}`) && accept(path))
    .sort()
}

function readEntries(folder: string) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
}

/** A path as it is written in messages and documents: from the given folder, with forward slashes. */
export function pathFrom(folder: string, path: string): string {
  return relative(folder, path).split(sep).join('/')
}
