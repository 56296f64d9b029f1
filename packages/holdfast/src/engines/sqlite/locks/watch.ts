/**
 * Watching reads the file's log of events from a position on, at the watcher's own pace. Changes of this process are
 * told by its commits, changes of other processes are found by the poll that also serves waiters. A position that the log
 * no longer has, or that is of another log, starts with a gap and the current holders.
 */
import type { Clock, Timer } from '../../../base/clock.ts'
import {
  Changes,
  currentHolders,
  picture,
  type ToldEvent,
  toldEvent,
  watching,
} from '../../../kit/watching.ts'
import type { Call, PageRequest, WatchEvent } from '../../../spi.ts'
import type { Connection } from './connection.ts'
import { WATCHED_FOR_MS } from './event-log.ts'
import { list } from './looking.ts'
import type { FilePoll, Onlooker } from './poll.ts'
import type { EventRow, Statements } from './statements.ts'

const PROLONGED_EVERY_MS = WATCHED_FOR_MS / 3
const EVENTS_AT_ONCE = 256

/** The watchers of this process: keeps the log open for them, and tells them when to read it. */
export class Watchers extends Changes implements Onlooker {
  readonly #clock: Clock
  readonly #poll: FilePoll
  readonly #openLog: () => Promise<void>
  #joined = 0
  #isClosed = false
  #prolonging: Timer | undefined

  /** `openLog` opens the log in a transaction, or prolongs it. */
  constructor(clock: Clock, poll: FilePoll, openLog: () => Promise<void>) {
    super()
    this.#clock = clock
    this.#poll = poll
    this.#openLog = openLog
    poll.add(this)
  }

  get isIdle(): boolean {
    return this.#joined === 0 || this.#isClosed
  }

  join(): { readonly leave: () => void } {
    this.#joined++
    this.#poll.arm()
    if (this.#joined === 1) this.#prolongLater()
    return {
      leave: () => {
        this.#joined--
        if (this.isIdle) this.#rest()
      },
    }
  }

  /** Wakes them, so that they find out. */
  close(): void {
    this.#isClosed = true
    this.#rest()
    this.changed()
  }

  #rest(): void {
    this.#prolonging?.cancel()
    this.#poll.arm()
  }

  look(): void {
    this.changed()
  }

  /** Without it the log would be closed in the end, and the watchers would get a gap. So a failure may wait for the next. */
  #prolongLater(): void {
    this.#prolonging = this.#clock.setTimer(PROLONGED_EVERY_MS, () => {
      this.#openLog().catch(() => {})
      this.#prolongLater()
    })
  }
}

/** Ends when the call is cancelled; throws when the connection is closed. */
export function watch(
  connection: Connection,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const { watchers, namespace } = connection

  async function* events(): AsyncGenerator<WatchEvent> {
    let at = cursor === undefined ? await headOf(connection, call) : positionAt(cursor)
    // A watcher that comes back keeps the log open before it reads, so that it reads on.
    if (cursor !== undefined) await connection.openLog(call)
    while (!call.cancelled) {
      const seen = watchers.changes
      const events = at === null ? null : await connection.read(call, readFrom(at))
      if (events === null) {
        const head = await headOf(connection, call)
        const holders = holdersBefore(head.nextToken, connection, prefix, call)
        yield* picture(holders, { restart: `${head.logId}:gap`, end: cursorOf(head) })
        at = head
        continue
      }
      for (const event of events) {
        at = { logId: String(event.log_id), last: Number(event.no) }
        const token = event.token === null ? null : BigInt(event.token)
        if (event.namespace === namespace && event.name.startsWith(prefix))
          yield { ...toldEvent({ ...event, token }), cursor: cursorOf(at) }
        if (call.cancelled) return
      }
      if (events.length < EVENTS_AT_ONCE) await watchers.next(seen, call)
    }
  }

  return watching(call, () => watchers.join(), events)
}

interface Position {
  readonly logId: string
  /** The number of the last event that was seen; 0 before the first. */
  readonly last: number
}

/** The end of the log, which is open from here on. */
async function headOf(
  connection: Connection,
  call: Call,
): Promise<Position & { readonly nextToken: number }> {
  for (;;) {
    await connection.openLog(call)
    const head = await connection.read(call, (sql) => sql.logHead.first())
    // It is closed again only if this process was stopped for a minute right here.
    if (head?.log_id != null) return { logId: head.log_id, last: head.last, nextToken: head.next_token }
  }
}

/** Null: the log does not have what comes after it. */
function readFrom({ logId, last }: Position): (sql: Statements) => readonly EventRow[] | null {
  return (sql) => {
    // The event at the position is read too: while it is there, none after it is missing.
    const rows = sql.eventsFrom.all(last, EVENTS_AT_ONCE + 1)
    const [first] = rows
    if (first?.log_id !== logId) return null
    if (first.no === null) return last === 0 ? [] : null
    if (last === 0) return first.no === 1 ? rows.slice(0, EVENTS_AT_ONCE) : null
    return first.no === last ? rows.slice(1) : null
  }
}

/**
 * Holders granted after the position was taken are left out, because the log tells of them; the tokens of one file increase
 * in the order of grants.
 */
async function* holdersBefore(
  nextToken: number,
  connection: Connection,
  prefix: string,
  call: Call,
): AsyncGenerator<ToldEvent> {
  const { namespace } = connection
  const readPage = (page: PageRequest) =>
    connection.read(call, (sql, nowMs) => list(sql, { namespace, prefix }, page, nowMs))
  for await (const holder of currentHolders(readPage))
    if (holder.token !== null && holder.token < nextToken) yield holder
}

function cursorOf({ logId, last }: Position): string {
  return `${logId}:${last}`
}

/** Null for anything that was not handed out as a cursor to go on from. */
function positionAt(cursor: string): Position | null {
  const [, logId, last] = /^([\w-]{22}):(\d{1,15})$/.exec(cursor) ?? []
  return logId === undefined || last === undefined ? null : { logId, last: Number(last) }
}
