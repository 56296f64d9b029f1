// The backends of the library, read from its folders: each has an `index.ts` and a `from-url.ts`.
//
//   engines/memory              memory
//   engines/redis/locks         redis
//   engines/redis/redlock       redlock             (another entry point of the package: ./redlock)
//   engines/postgres/advisory   postgres-advisory   (./postgres/advisory)

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { libraryPath } from './repository.ts'

export interface BackendFolder {
  /** Pages, suites and columns are named after it. */
  readonly name: string
  /** Below `src`: `engines/redis/locks`. */
  readonly folder: string
}

export function backendsOf(repository: string): BackendFolder[] {
  const library = join(repository, libraryPath)
  const manifest = join(library, 'package.json')
  const { exports = {} }: { exports?: Record<string, { default?: string }> } = existsSync(manifest)
    ? JSON.parse(readFileSync(manifest, 'utf8'))
    : {}
  const isBackend = (folder: string) =>
    existsSync(join(library, 'src', folder, 'from-url.ts')) &&
    existsSync(join(library, 'src', folder, 'index.ts'))
  const nameOf = (folder: string) => {
    const entry = Object.keys(exports).find((key) => exports[key]?.default === `./dist/${folder}/index.js`)
    const [, engine = '', part] = folder.split('/')
    return entry?.slice(2).replaceAll('/', '-') ?? (part === undefined || part === 'locks' ? engine : part)
  }
  return foldersIn(join(library, 'src/engines'))
    .flatMap((engine) => [
      `engines/${engine}`,
      ...foldersIn(join(library, 'src/engines', engine))
        .filter((part) => part !== 'client')
        .map((part) => `engines/${engine}/${part}`),
    ])
    .filter(isBackend)
    .map((folder) => ({ name: nameOf(folder), folder }))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
}

function foldersIn(folder: string): string[] {
  if (!existsSync(folder)) return []
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
}
