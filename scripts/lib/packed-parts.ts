// How many bytes each part of the library adds to its package.
//
// A bundled chunk belongs to the part whose entry points import it; what parts of one engine share belongs to the engine, and
// what several parts share, to core. Nothing counts for `testing` that a user of the library needs as well.

import { posix } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { BackendFolder } from './backends.ts'

export const sharedParts = [
  'core and kit',
  'documents',
  'testing',
  'guards and lockfree',
  'command line',
  'telemetry',
  'web-locks',
] as const
const [core, documents, testing, withoutEngine, commandLine, telemetry, webLocks] = sharedParts

export function bytesOfParts(
  files: readonly string[],
  read: (file: string) => string,
  backends: readonly BackendFolder[],
): Map<string, number> {
  const texts = new Map<string, string>()
  const parts = new Chunks(files, read, backends)
  for (const file of files) {
    const part = parts.partOf(file)
    texts.set(part, (texts.get(part) ?? '') + read(file))
  }
  // As in a tarball, one text after the other is compressed with it.
  return new Map([...texts].map(([part, text]) => [part, gzipSync(text).length]))
}

class Chunks {
  readonly #imports: ReadonlyMap<string, readonly string[]>
  readonly #backends: readonly BackendFolder[]
  /** The backends and recipes, whose pages count for them. */
  readonly #pages: ReadonlySet<string>

  constructor(files: readonly string[], read: (file: string) => string, backends: readonly BackendFolder[]) {
    const modules = files.filter((file) => file.endsWith('.js'))
    this.#imports = new Map(modules.map((file) => [file, importsIn(file, read(file))]))
    this.#backends = backends
    const recipes = modules.filter((file) => /^dist\/recipes\/[^/]+$/.test(file))
    this.#pages = new Set([
      ...backends.map(({ name }) => name),
      ...recipes.map((file) => `recipes/${stem(posix.basename(file))}`),
    ])
  }

  partOf(file: string): string {
    if (!file.startsWith('dist/shared/')) return this.#partOfPath(file)
    const users = this.#usersOf(file)
    // A chunk that is loaded on demand belongs to what it imports.
    const least = users.size > 0 ? testing : core
    const parts = users.size > 0 ? users : this.#partsOf(this.#imports.get(file) ?? [])
    if (parts.size > 1) parts.delete(least)
    const engines = new Set([...parts].map((part) => this.#engineOf(part)))
    const [part = core] = parts.size === 1 ? parts : engines.size === 1 ? engines : []
    return part
  }

  #usersOf(chunk: string, seen = new Set<string>()): Set<string> {
    const users = [...this.#imports].filter(([user, imported]) => imported.includes(chunk) && !seen.has(user))
    for (const [user] of users) seen.add(user)
    return new Set(
      users.flatMap(([user]) =>
        user.startsWith('dist/shared/') ? [...this.#usersOf(user, seen)] : [this.#partOfPath(user)],
      ),
    )
  }

  #partsOf(chunks: readonly string[]): Set<string> {
    return new Set(chunks.map((chunk) => this.partOf(chunk)))
  }

  #partOfPath(file: string): string {
    const [folder, layer = '', name = ''] = file.split('/')
    if (layer === telemetry) return telemetry
    if (stem(layer) === webLocks) return webLocks
    if (folder !== 'dist') {
      const page = { backends: stem(name), recipes: `recipes/${stem(name)}` }[layer] ?? ''
      return this.#pages.has(page) ? page : documents
    }
    if (layer === 'engines') {
      const own = this.#backends.find((backend) => file.startsWith(`dist/${backend.folder}/`))
      return own?.name ?? this.#engineOf(name)
    }
    if (layer === 'recipes' && name !== '') return `recipes/${stem(name)}`
    if (layer === 'cli') return commandLine
    if (layer === 'guards' || layer === 'lockfree') return withoutEngine
    return layer === 'testing' ? testing : core
  }

  /** The backend that is called as its engine. */
  #engineOf(part: string): string {
    const folder = this.#backends.find(({ name }) => name === part)?.folder
    return folder?.split('/')[1] ?? part
  }
}

function stem(name: string): string {
  return name.replace(/\..*/, '')
}

/** Loaded at once, not on demand. */
function importsIn(file: string, text: string): string[] {
  const found = [...text.matchAll(/\b(?:from|import)\s*["'](\.[^"']+)["']/g)]
  return found.map(([, from = '']) => posix.join(posix.dirname(file), from))
}
