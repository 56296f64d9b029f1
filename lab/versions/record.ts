// What passed with each version, and the table that docs/versions.md makes of it.

import type { Version } from './versions.ts'

export interface Passed {
  /** The whole number of the version. */
  readonly version: string
  readonly suites: string
  readonly passed: number
  /** As `2026-11-19`. */
  readonly date: string
  /** Of the sources that it was run with: what passed with these is not run again. */
  readonly sources: string
}

export type Record = Readonly<{ [id: string]: Passed }>

/** What is still to be run with these sources. */
export function remaining(
  versions: readonly Version[],
  sources: string | null,
  ...records: readonly Record[]
): Version[] {
  return versions.filter(
    ({ id }) => sources === null || records.every((record) => record[id]?.sources !== sources),
  )
}

/** The record with what passed with these sources, in the order of the versions, without what is no version any more. */
export function updated(
  versions: readonly Version[],
  sources: string | null,
  record: Record,
  results: Record,
): Record {
  return Object.fromEntries(
    versions.flatMap(({ id }) => {
      const entry = results[id]?.sources === sources ? results[id] : record[id]
      return entry === undefined ? [] : [[id, entry]]
    }),
  )
}

export function tableOf(versions: readonly Version[], record: Record): string {
  const rows = versions.map(({ id, title }) => {
    const { version, suites, passed, date } = record[id] ?? {}
    return [title, version ?? 'not recorded', suites, passed?.toLocaleString('en'), date]
  })
  const all = [['', 'version', 'suites', 'tests passed', 'on'], Array<string>(5).fill('---'), ...rows]
  return all.map((cells) => `| ${cells.map((cell) => cell ?? '').join(' | ')} |\n`).join('')
}

const start = '<!-- npm run test:versions -- --record -->\n\n'
const end = '\n<!-- end of the record -->'

/** The document with this table between its two marks. */
export function withTable(document: string, table: string): string {
  const [from, to] = [document.indexOf(start), document.indexOf(end)]
  if (from < 0 || to < from) throw new Error('the document has no place for the table of versions')
  return document.slice(0, from + start.length) + table + document.slice(to)
}
