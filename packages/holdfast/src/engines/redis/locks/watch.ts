/**
 * What a watcher gets: events from a position on, at its own pace. A position that the log does not reach back to, or that
 * belongs to another log, starts with a gap and the current holders.
 */

import { sleep } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { picture, type ToldEvent, watching } from '../../../kit/watching.ts'
import type { Call, WatchEvent } from '../../../spi.ts'
import type { Connection } from './connection.ts'
import { allPages, type EventLog, type Head, type Position } from './event-log.ts'
import { checkNames, listPage } from './paging.ts'

const RETRY_MS = 500

/** Ends when the call is cancelled; throws when the backend is closed. */
export function watch(
  connection: Connection,
  log: EventLog,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const join = () => {
    connection.lifetime.begin(call)
    checkNames(connection)
    return { leave: log.join() }
  }
  return watching(call, join, () => eventsFrom(connection, log, prefix, cursor, call))
}

async function* eventsFrom(
  connection: Connection,
  log: EventLog,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncGenerator<WatchEvent> {
  // A watcher that comes back keeps the log open before it reads, so that it reads on.
  const head = await log.head(call)
  let position: Position | null = cursor === undefined ? head : positionAt(cursor)
  /** Ids of holders in the picture that the log may tell of as well, until all of the log up to the picture has been read. */
  const told = new Set<string>()
  while (!call.cancelled) {
    const seen = log.changes
    try {
      const from: Position | null = position
      const entries = from === null ? null : await log.after(from, call)
      if (from === null || entries === null) {
        position = null
        const head = await log.head(call)
        const cursors = { restart: `${head.logId}:gap`, end: cursorOf(head) }
        told.clear()
        yield* picture(currentHolders(connection, prefix, head, told, call), cursors)
        position = head
        continue
      }
      for (const { at, event } of entries) {
        position = { ...from, at }
        const isTold = event?.kind === 'acquired' && told.delete(event.id)
        if (event?.name.startsWith(prefix) && !isTold) yield { ...event, cursor: cursorOf(position) }
        if (call.cancelled) return
      }
      if (entries.length > 0) continue
      told.clear()
      await log.next(seen, call)
    } catch (error) {
      // A server that cannot be reached is asked again: what it has logged can be read later.
      if (call.cancelled || !isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
      await sleep(connection.clock, RETRY_MS, { signal: call.signal })
    }
  }
}

async function* currentHolders(
  connection: Connection,
  prefix: string,
  head: Head,
  told: Set<string>,
  call: Call,
): AsyncGenerator<ToldEvent> {
  // An item may be on two pages.
  const seen = new Set<string>()
  for await (const states of allPages((page) => listPage(connection, prefix, page, call)))
    for (const { name, holders, atMs } of states)
      for (const { id, holder, owner, token, heldForMs, session } of holders) {
        // The log tells of what was granted after its end was read. In one millisecond with that, or with this look, it cannot
        // be known; nor if the clock was set back (T109).
        const grantedAtMs = atMs - heldForMs
        const isNewer = heldForMs > 0 && grantedAtMs > head.nowMs
        // Of other clients' locks nothing is logged.
        if (isNewer || session === '' || seen.has(id)) continue
        seen.add(id)
        if (grantedAtMs >= head.nowMs) told.add(id)
        yield { kind: 'acquired', name, id, holder, ...(owner !== undefined && { owner }), token }
      }
}

function cursorOf({ logId, at }: Position): string {
  return `${logId}:${at}`
}

/** Null for anything that is not a cursor of ours. */
function positionAt(cursor: string): Position | null {
  const [, logId, at] = /^([\w-]{22}):(\d{1,20}-\d{1,20})$/.exec(cursor) ?? []
  return logId === undefined || at === undefined ? null : { logId, at }
}
