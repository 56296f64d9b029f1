/**
 * What a watcher gets: events from a position on, at its own pace. A position that the events do not reach back to, or that
 * belongs to another log, starts with a gap and the current holders.
 */

import { sleep } from '../../base/clock.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { picture, type ToldEvent, watching } from '../../kit/watching.ts'
import type { Call, Clock, NameState, WatchEvent } from '../../spi.ts'

export interface Position {
  readonly logId: string
  readonly at: string
}

/** The end of the log, and the engine's time there. Null: the times of several engines cannot be compared. */
export interface Head extends Position {
  readonly nowMs: number | null
}

export interface Entry {
  readonly at: string
  /** Null: nothing to tell. */
  readonly event: ToldEvent | null
}

/** The events of a namespace, for all watchers of this process. */
export interface EventSource {
  /** Call the result to leave. */
  join(): () => void
  head(call: Call): Promise<Head>
  /** What comes after; null if that is not known any more. */
  after(position: Position, call: Call): Promise<readonly Entry[] | null>
  /** Grows whenever something may be new. */
  readonly changes: number
  /** Until there are more changes than `seen`, or the call is cancelled. */
  next(seen: number, call: Call): Promise<void>
}

export interface WatchTools {
  readonly clock: Clock
  readonly source: EventSource
  /** The names in use. */
  readonly pages: (prefix: string, call: Call) => AsyncIterable<readonly NameState[]>
  /** Throws if the backend is closed. */
  readonly begin: () => void
}

const RETRY_MS = 500

/** Ends when the call is cancelled; throws when the backend is closed. */
export function watch(
  tools: WatchTools,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const join = () => {
    tools.begin()
    return { leave: tools.source.join() }
  }
  return watching(call, join, () => eventsFrom(tools, prefix, cursor, call))
}

async function* eventsFrom(
  tools: WatchTools,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncGenerator<WatchEvent> {
  const { source } = tools
  // A watcher that comes back keeps the log open before it reads, so that it reads on.
  const head = await source.head(call)
  let at: Position | null = cursor === undefined ? head : positionAt(cursor)
  while (!call.cancelled) {
    tools.begin()
    const seen = source.changes
    const entries: readonly Entry[] | null = at === null ? null : await persisting(tools, call, source, at)
    if (at === null || entries === null) {
      const head = await persisting(tools, call, source)
      at = null
      try {
        const cursors = { restart: `${head.logId}:gap`, end: cursorOf(head) }
        yield* picture(currentHolders(tools, prefix, head, call), cursors)
        at = head
      } catch (error) {
        await pauseAfter(error, tools, call)
      }
      continue
    }
    const { logId }: Position = at
    for (const entry of entries) {
      at = { logId, at: entry.at }
      if (entry.event?.name.startsWith(prefix)) yield { ...entry.event, cursor: cursorOf(at) }
      if (call.cancelled) return
    }
    if (entries.length === 0) await source.next(seen, call)
  }
}

/** A server that cannot be reached is asked again: what it has logged can be read later. */
function persisting(tools: WatchTools, call: Call, source: EventSource): Promise<Head>
function persisting(
  tools: WatchTools,
  call: Call,
  source: EventSource,
  at: Position,
): Promise<readonly Entry[] | null>
async function persisting(tools: WatchTools, call: Call, source: EventSource, at?: Position) {
  for (;;) {
    try {
      return await (at === undefined ? source.head(call) : source.after(at, call))
    } catch (error) {
      await pauseAfter(error, tools, call)
    }
  }
}

async function pauseAfter(error: unknown, { clock }: WatchTools, call: Call): Promise<void> {
  if (call.cancelled || !isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
  await sleep(clock, RETRY_MS, { signal: call.signal })
}

async function* currentHolders(
  { pages }: WatchTools,
  prefix: string,
  head: Head,
  call: Call,
): AsyncGenerator<ToldEvent> {
  // An item may be on two pages.
  const seen = new Set<string>()
  for await (const states of pages(prefix, call))
    for (const { name, holders, atMs } of states)
      for (const { id, holder, owner, token, heldForMs, session } of holders) {
        // The log tells of what was granted after its end was read.
        const isNewer = head.nowMs !== null && heldForMs > 0 && atMs - heldForMs > head.nowMs
        // Of other clients' locks nothing is logged.
        if (isNewer || session === '' || seen.has(id)) continue
        seen.add(id)
        yield { kind: 'acquired', name, id, holder, ...(owner !== undefined && { owner }), token }
      }
}

function cursorOf({ logId, at }: Position): string {
  return `${logId}:${at}`
}

/** Null for anything that was not handed out as a place to go on from. */
function positionAt(cursor: string): Position | null {
  const [, logId, at] = /^([\w-]{22}):(\d{1,20}-\d{1,20})$/.exec(cursor) ?? []
  return logId === undefined || at === undefined ? null : { logId, at }
}
