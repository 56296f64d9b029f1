/** Reads the tables of the reference pages, so that tests can hold them against the code. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const pages = join(import.meta.dirname, '../../../docs/reference')

/**
 * The rows of all tables of `docs/reference/<page>` below the heading (or of the whole page), each as an object
 * with the table's own column names as keys. Code marks are taken off.
 */
export function tableRows(page: string, heading?: string): Record<string, string>[] {
  const lines = sectionOf(readFileSync(join(pages, page), 'utf8').split('\n'), heading)
  const rows: Record<string, string>[] = []
  let columns: string[] | undefined
  for (const line of lines) {
    if (!line.startsWith('|')) {
      columns = undefined
      continue
    }
    const cells = line
      .split(/(?<!\\)\|/)
      .slice(1, -1)
      .map((cell) => cell.trim().replaceAll('`', '').replaceAll('\\|', '|'))
    if (columns === undefined) columns = cells
    else if (!cells.every((cell) => /^:?-+:?$/.test(cell)))
      rows.push(Object.fromEntries(columns.map((column, index) => [column, cells[index] ?? ''])))
  }
  return rows
}

function sectionOf(lines: readonly string[], heading: string | undefined): readonly string[] {
  if (heading === undefined) return lines
  const start = lines.findIndex((line) => line.startsWith('#') && line.endsWith(` ${heading}`))
  if (start === -1) throw new Error(`no heading ${heading}`)
  const length = lines.slice(start + 1).findIndex((line) => line.startsWith('#'))
  return lines.slice(start + 1, length === -1 ? undefined : start + 1 + length)
}
