// The recorded public surface: api/<entry>.api.md for every entry point of the library, and api/<package>-<entry>.api.md for
// those of the other packages.
// `node scripts/checks/api.ts` compares the records with the build; with `--write` it rewrites them.

import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { diff } from 'node:util'
import { type Complaint, finish } from '../lib/report.ts'
import { filesUnder, packages, pathFrom, root } from '../lib/repository.ts'
import { describeSurface } from '../lib/surface.ts'

/** The records by file name: `index.api.md`, `guards-memory.api.md`. Those of all packages but the first have its name. */
export function recordsOf(...packageFolders: readonly string[]): Map<string, string> {
  return new Map(
    packageFolders.flatMap((folder, index) =>
      [...describeSurface(folder)].map(([specifier, text]): [string, string] => {
        const path = specifier.split('/').slice(index === 0 ? 1 : 0)
        return [`${path.join('-') || 'index'}.api.md`, text]
      }),
    ),
  )
}

export function checkApi(records: Map<string, string>, folder: string): Complaint[] {
  const written = new Map(
    filesUnder(folder, isRecord).map((path) => [pathFrom(folder, path), readFileSync(path, 'utf8')]),
  )
  const complaints: Complaint[] = []
  for (const name of new Set([...records.keys(), ...written.keys()])) {
    const before = written.get(name) ?? ''
    const after = records.get(name) ?? ''
    if (before === after) continue
    const message = `differs from the build; if that is on purpose, run npm run api\n${changes(before, after)}`
    complaints.push({ file: `api/${name}`, message })
  }
  return complaints
}

export function writeApi(records: Map<string, string>, folder: string): void {
  mkdirSync(folder, { recursive: true })
  for (const path of filesUnder(folder, isRecord)) {
    if (!records.has(pathFrom(folder, path))) rmSync(path)
  }
  for (const [name, text] of records) writeFileSync(join(folder, name), text)
}

function isRecord(path: string): boolean {
  return path.endsWith('.api.md')
}

/** The lines that were removed and added, each group after the heading that it stands under. */
function changes(before: string, after: string): string {
  const output: string[] = []
  let heading = ''
  for (const [operation, line] of diff(before.split('\n'), after.split('\n'))) {
    if (line.startsWith('#')) heading = line
    if (operation === 0) continue
    if (heading !== '' && heading !== line) output.push(`  ${heading}`)
    heading = ''
    // The result tells how to get from the second text to the first: what it deletes is new.
    output.push(`${operation === -1 ? '+' : '-'} ${line}`)
  }
  return output.join('\n')
}

if (import.meta.main) {
  const records = recordsOf(...packages.map((path) => join(root, path)))
  const folder = join(root, 'api')
  if (process.argv.includes('--write')) {
    writeApi(records, folder)
    console.log(`api: wrote the records of ${records.size} entry points`)
  } else {
    finish('api', checkApi(records, folder), `${records.size} entry points are as recorded`)
  }
}
