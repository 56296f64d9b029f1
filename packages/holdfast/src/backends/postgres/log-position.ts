/**
 * Positions in the log of events; see `sql/events.ts`. What was seen is a snapshot. In the middle of a page a position has
 * three parts: the snapshot before the page, the snapshot at its end, and the last event that was told. A cursor is a
 * position as text.
 */

/** All transactions below `from` are seen, except those in `open`. */
export interface Snapshot {
  readonly from: bigint
  /** In ascending order. */
  readonly open: readonly bigint[]
}

export interface Position {
  readonly log: string
  readonly seen: Snapshot
  readonly page?: { readonly until: Snapshot; readonly xid: bigint; readonly no: bigint }
}

/** As PostgreSQL writes it: `xmin:xmax:xip,xip`. */
export function snapshotOf(text: string): Snapshot {
  const [, from = '', open = ''] = text.split(':')
  return { from: BigInt(from), open: open === '' ? [] : open.split(',').map(BigInt) }
}

export function textOf({ from, open }: Snapshot): string {
  return `${open[0] ?? from}:${from}:${open.join(',')}`
}

export function sees({ from, open }: Snapshot, xid: bigint): boolean {
  return xid < from && !open.includes(xid)
}

/** Of two that were taken one after the other, the one that sees all that the other does. */
export function laterOf(a: Snapshot, b: Snapshot): Snapshot {
  if (a.from !== b.from) return a.from > b.from ? a : b
  return a.open.length <= b.open.length ? a : b
}

/** With too many open transactions there is no place to go on from: a watcher that comes back with it gets a gap. */
export function cursorOf({ log, seen, page }: Position): string {
  const place = `${log}/${short(seen)}`
  const cursor = page === undefined ? place : `${place}/${short(page.until)}/${page.xid}.${page.no}`
  return pattern.test(cursor) ? cursor : `${log}/gap`
}

/** Null for anything that was not handed out as a place to go on from. */
export function positionAt(cursor: string): Position | null {
  const [, log, seen, until, xid, no] = pattern.exec(cursor) ?? []
  if (log === undefined || seen === undefined) return null
  const place = { log, seen: long(seen) }
  if (until === undefined || xid === undefined || no === undefined) return place
  return { ...place, page: { until: long(until), xid: BigInt(xid), no: BigInt(no) } }
}

const pattern =
  /^([\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12})\/([\d.]{1,9999})(?:\/([\d.]{1,9999})\/(\d{1,18})\.(\d{1,18}))?$/

function short({ from, open }: Snapshot): string {
  return [from, ...open].join('.')
}

/** Always one that PostgreSQL takes, whatever a cursor has in it. */
function long(text: string): Snapshot {
  const [from = 1n, ...open] = text
    .split('.')
    .map((part) => BigInt(part.slice(0, 18)))
    .filter((xid) => xid > 0n)
  return {
    from,
    open: [...new Set(open)].filter((xid) => xid < from).sort((a, b) => (a < b ? -1 : 1)),
  }
}
