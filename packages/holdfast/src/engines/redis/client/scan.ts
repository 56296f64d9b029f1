/**
 * One bounded step through the keys of a server, for lists in pages.
 *
 * A step of SCAN cannot be cut by the server, and may find more than a page has room for. It is then repeated with a smaller
 * COUNT. What is too much even with COUNT 1 is cut here: the position then says where the step went and which item came last,
 * and the repeated step goes on behind it. If it goes elsewhere by then, because keys came or went, it starts again: an
 * item may come twice, and none is missed.
 */
import { InvalidArgumentError } from '../../../base/errors.ts'
import { compareNames } from '../../../base/names.ts'
import type { RedisReply } from './raw.ts'

export interface ScanPosition {
  /** The server's own. */
  readonly cursor: string
  readonly cut?: { readonly until: string; readonly after: string }
}

export const SCAN_START: ScanPosition = { cursor: '0' }

export interface ScanRequest {
  readonly pattern: string
  readonly position: ScanPosition
  readonly limit: number
  /** The item that a key is about; null for a key of others. Several keys may be about one item. */
  itemOf(key: string): string | null
  /** The part of an item that may be shown in a position, if not all of it. Items are in byte order of it. */
  shownOf?(item: string): string
}

export interface ScanStep {
  readonly items: readonly string[]
  /** Null after the last step. */
  readonly next: ScanPosition | null
}

/** How many keys a step looks at: about half a millisecond of the server's time. */
const MOST_KEYS = 500

export async function scanStep(
  send: (args: readonly string[]) => Promise<RedisReply>,
  request: ScanRequest,
): Promise<ScanStep> {
  const { pattern, position, limit, itemOf, shownOf = (item: string) => item } = request
  const { cursor, cut } = position
  for (let count = cut === undefined ? MOST_KEYS : 1; ; count = Math.max(1, count >> 3)) {
    const reply = await send(['SCAN', cursor, 'MATCH', pattern, 'COUNT', String(count)])
    const [until, keys] = reply as [string | number, readonly string[]]
    const isSameStep = cut?.until === String(until)
    const items = [...new Set(keys.map(itemOf))]
      .filter((item) => item !== null)
      .filter((item) => !isSameStep || compareNames(shownOf(item), cut.after) > 0)
      .sort((a, b) => compareNames(shownOf(a), shownOf(b)))
    if (items.length <= limit)
      return { items, next: String(until) === '0' ? null : { cursor: String(until) } }
    if (count > 1) continue
    const page = items.slice(0, limit)
    const after = shownOf(page.at(-1) ?? '')
    return { items: page, next: { cursor, cut: { until: String(until), after } } }
  }
}

/** The cursor of a page: which server is being scanned, in words of the backend, and the position there. */
export function scanCursor(where: readonly string[], { cursor, cut }: ScanPosition): string {
  return JSON.stringify([...where, cursor, ...(cut === undefined ? [] : [cut.until, cut.after])])
}

/** `words`: how many words `where` has. */
export function readScanCursor(
  text: string,
  words: number,
): { readonly where: readonly string[]; readonly position: ScanPosition } {
  try {
    const parts = (JSON.parse(text) as readonly unknown[]).map(String)
    const [cursor, until, after] = parts.slice(words)
    if (cursor === undefined || !/^\d+$/.test(cursor)) throw new TypeError()
    const cut = until !== undefined && after !== undefined ? { cut: { until, after } } : {}
    return { where: parts.slice(0, words), position: { cursor, ...cut } }
  } catch {
    throw new InvalidArgumentError('cursor', 'must be the `next` of a page of the same list.')
  }
}
