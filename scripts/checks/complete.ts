// A backend is more than its folder: users need an entry point and a page, and the suite and the benchmark must run it.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { columns, upcoming } from '../docs/trap-types.ts'
import { type Complaint, finish } from '../lib/report.ts'
import { root } from '../lib/repository.ts'

/** What is missing of the backends below a repository's root. */
export function checkComplete(repository: string, trapColumns: readonly string[]): Complaint[] {
  const read = (path: string) =>
    existsSync(join(repository, path)) ? readFileSync(join(repository, path), 'utf8') : ''
  const manifest = JSON.parse(read('packages/holdfast/package.json') || '{}') as {
    exports?: Record<string, unknown>
  }
  return backendsOf(repository).flatMap((name) => {
    // Another way to use the same engine stands below it: ./postgres/advisory is backends/postgres-advisory.
    const entry = `./${name.replace('-', '/')}`
    const needed: [boolean, string, string][] = [
      [manifest.exports?.[entry] !== undefined, 'packages/holdfast/package.json', `has no export ${entry}`],
      [
        read('packages/holdfast/src/open.ts').includes(`./backends/${name}/index.ts`),
        'packages/holdfast/src/open.ts',
        `opens no ${name}`,
      ],
      [
        read(`packages/holdfast/test/conformance/${name}.test.ts`).includes('describeBackend'),
        `packages/holdfast/test/conformance/${name}.test.ts`,
        'does not run the conformance suite',
      ],
      [read(`docs/backends/${name}.md`) !== '', `docs/backends/${name}.md`, 'is missing'],
      [
        read('docs/README.md').includes(`backends/${name}.md`),
        'docs/README.md',
        `does not link to backends/${name}.md`,
      ],
      [
        read('README.md').includes(`docs/backends/${name}.md`),
        'README.md',
        `does not link to docs/backends/${name}.md`,
      ],
      [read(`bench/subjects/${name}.ts`) !== '', `bench/subjects/${name}.ts`, 'is missing'],
      // Its cells may still stand in the last column, by name.
      [
        trapColumns.includes(name) || (upcoming as readonly string[]).includes(name.replace('-', ' ')),
        'scripts/docs/trap-types.ts',
        `has no column ${name}`,
      ],
    ]
    return needed.flatMap(([isThere, file, message]) => (isThere ? [] : [{ file, message }]))
  })
}

function backendsOf(repository: string): string[] {
  return readdirSync(join(repository, 'packages/holdfast/src/backends'), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
}

if (import.meta.main) {
  const complaints = checkComplete(root, columns)
  finish('complete', complaints, `${backendsOf(root).length} backends have all that belongs to one`)
}
