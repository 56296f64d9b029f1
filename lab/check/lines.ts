/** Histories as JSON lines: one event a line, tokens as decimal strings. */
import { assemble } from './assemble.ts'
import { aboutShape, readEvent, readShape } from './fields.ts'
import type { About, History, HistoryEvent } from './history.ts'
import { HistoryError } from './history-error.ts'
import { mergeEvents } from './merge.ts'

/** One line, without its end. */
export function formatLine(event: About | HistoryEvent): string {
  return JSON.stringify(event, (_key, value) => (typeof value === 'bigint' ? value.toString() : value))
}

export function formatHistory(about: About, events: Iterable<HistoryEvent>): string {
  return [about, ...events].map((event) => `${formatLine(event)}\n`).join('')
}

export interface ParsedLines {
  readonly about: About
  readonly events: readonly HistoryEvent[]
  /** The line that each event came from. */
  readonly lines: readonly number[]
}

/**
 * Reads the lines without putting them together: for the files of several processes, which are merged first. With
 * `torn: 'allowed'` an unfinished last line is left out: a process that was killed may have been writing it.
 */
export function parseLines(text: string, options: { readonly torn?: 'allowed' } = {}): ParsedLines {
  const rows = text.split('\n')
  if (rows.at(-1) === '') rows.pop()
  else if (options.torn === 'allowed') rows.pop()
  const [first, ...rest] = rows
  if (first === undefined)
    throw new HistoryError('MALFORMED', 1, 'a history begins with a line of kind "about"')

  const about = readLine(first, 1, (value) => readShape(aboutShape, value))
  const events = rest.map((row, index) => readLine(row, index + 2, readEvent))
  return { about, events, lines: events.map((_event, index) => index + 2) }
}

export function parseHistory(text: string): History {
  const { about, events, lines } = parseLines(text)
  return assemble(about, events, lines)
}

/**
 * The files of several processes of one run, as one history. What the first says about the run counts. The ids of
 * operations must differ between them (`prefix` of the recorder); last lines that were torn by a kill are left out.
 */
export function parseHistories(texts: readonly string[]): History {
  const parsed = texts.map((text) => parseLines(text, { torn: 'allowed' }))
  const [first] = parsed
  if (first === undefined) throw new HistoryError('MALFORMED', null, 'there is no file to read')
  return assemble(first.about, mergeEvents(parsed.map(({ events }) => events)))
}

function readLine<T>(row: string, line: number, read: (value: unknown) => T): T {
  try {
    return read(JSON.parse(row))
  } catch (error) {
    throw new HistoryError('MALFORMED', line, (error as Error).message)
  }
}
