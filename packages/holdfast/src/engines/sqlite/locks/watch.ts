/**
 * Watching reads the file's log of events. Changes of this process are told by its commits, changes of other processes are
 * found by the poll that also serves waiters.
 */

import type { Timer } from '../../../base/clock.ts'
import { ignore } from '../../../base/ignore.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { type LogPage, type LogPicture, LogWatchers, PROLONGED_EVERY_MS } from '../../../kit/follow-log.ts'
import { currentHolders, type ToldEvent, toldEvent } from '../../../kit/watching.ts'
import type { Call, PageRequest } from '../../../spi.ts'
import type { Connection } from './connection.ts'
import type { FilePoll, Onlooker } from './poll.ts'
import type { EventRow, Statements } from './statements.ts'
import { list } from './states.ts'

const EVENTS_AT_ONCE = 256

interface Position {
  readonly logId: string
  /** The number of the last event that was seen; 0 before the first. */
  readonly last: number
}

export class FileWatchers extends LogWatchers<Position> implements Onlooker {
  readonly #connection: Connection
  readonly #poll: FilePoll
  #prolonging: Timer | undefined

  constructor(connection: Connection, poll: FilePoll) {
    super()
    this.#connection = connection
    this.#poll = poll
    poll.add(this)
  }

  get isIdle(): boolean {
    return this.size === 0
  }

  look(): void {
    this.changed()
  }

  protected started(): void {
    this.#poll.arm()
    this.#prolongLater()
  }

  protected stopped(): void {
    this.#prolonging?.cancel()
    this.#poll.arm()
  }

  async head(call: Call): Promise<Position> {
    return this.#openedHead(call)
  }

  protected async readFrom(at: Position): Promise<LogPage<Position> | null> {
    const connection = this.#connection
    const rows = await connection.read(neverCancelled, readFrom(at))
    if (rows === null) return null
    const events = rows.map((row) => {
      const token = row.token === null ? null : BigInt(row.token)
      const event = row.namespace === connection.namespace ? toldEvent({ ...row, token }) : null
      return { event, at: { logId: String(row.log_id), last: Number(row.no) } }
    })
    return { events, next: events.at(-1)?.at ?? at, isLast: events.length < EVENTS_AT_ONCE }
  }

  async picture(prefix: string, call: Call): Promise<LogPicture<Position>> {
    const { nextToken, ...at } = await this.#openedHead(call)
    const holders = holdersBefore(nextToken, this.#connection, prefix, call)
    return { at, restart: `${at.logId}:gap`, holders }
  }

  cursorOf({ logId, last }: Position): string {
    return `${logId}:${last}`
  }

  positionAt(cursor: string): Position | null {
    const [, logId, last] = /^([\w-]{22}):(\d{1,15})$/.exec(cursor) ?? []
    return logId === undefined || last === undefined ? null : { logId, last: Number(last) }
  }

  async #openedHead(call: Call): Promise<Position & { readonly nextToken: number }> {
    for (;;) {
      await this.#connection.openLog(call)
      const head = await this.#connection.read(call, (sql) => sql.logHead.first())
      // The log is closed again only if this process was stopped for a minute right here.
      if (head?.log_id != null) return { logId: head.log_id, last: head.last, nextToken: head.next_token }
    }
  }

  /** Without it the log would be closed in the end, and the watchers would get a gap. So a failure may wait for the next. */
  #prolongLater(): void {
    this.#prolonging = this.#connection.clock.setTimer(PROLONGED_EVERY_MS, () => {
      this.#connection.openLog(neverCancelled).catch(ignore)
      this.#prolongLater()
    })
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
