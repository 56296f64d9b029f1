/**
 * The watchers of this process read the log of events; `sql/event-log.ts` says how it is written. They read when a notification
 * comes, or at intervals while none can come.
 */

import { type Clock, sleep } from '../../../base/clock.ts'
import type { Random } from '../../../base/ids.ts'
import { ignore } from '../../../base/ignore.ts'
import { growingPauseMs } from '../../../base/pauses.ts'
import { type LogPage, type LogPicture, LogWatchers, PROLONGED_EVERY_MS } from '../../../kit/follow-log.ts'
import { Looks } from '../../../kit/looks.ts'
import { type ToldEvent, toldEvent } from '../../../kit/watching.ts'
import type { Call, WatchEventKind } from '../../../spi.ts'
import { arrayLiteral, type Parameter, type Row } from '../client/index.ts'

const EVENTS_AT_ONCE = 1_000
const SHORTEST_PAUSE_MS = 10
/** With more open transactions there is no cursor to go on from: a watcher that comes back gets a gap. */
const MOST_OPEN = 900

type LogStatement = 'openLog' | 'leaveLog' | 'readEvents' | 'holdersNow'

export interface WatchersOptions {
  readonly clock: Clock
  readonly random: Random
  readonly namespace: string
  readonly channel: string
  readonly pollMs: number
  /** With a limit of its own. */
  readonly query: (statement: LogStatement, parameters: readonly Parameter[]) => Promise<readonly Row[]>
  /** Ends sessions that are over. */
  readonly sweep: () => Promise<void>
  readonly expectNews: () => void
  /** Whether notifications arrive. */
  readonly isTold: () => boolean
}

/** A position in the log: a snapshot, as text. In the middle of a page: the snapshot before it, and the last event that was told. */
export interface Position {
  readonly log: string
  readonly seen: string
  readonly page?: { readonly until: string; readonly xid: string; readonly no: string }
}

/** Keeps the log open for its watchers, reads it, and sees to sessions that are over. */
export class Watchers extends LogWatchers<Position> {
  readonly retry: { readonly clock: Clock; readonly everyMs: number }
  readonly #options: WatchersOptions
  readonly #looks: Looks
  #leaving: Promise<unknown> = Promise.resolve()
  #changedMs = -Infinity

  constructor(options: WatchersOptions) {
    super()
    this.#options = options
    const { clock, random, pollMs, isTold } = options
    this.retry = { clock, everyMs: pollMs }
    this.#looks = new Looks({
      clock,
      random,
      pollMs,
      isTold,
      isNeeded: () => this.size > 0,
      // A program that watches is not at its end.
      keepsProcessAlive: true,
      look: async (names) => {
        if (names.has('tend')) await this.#tend()
        this.#changedNow()
      },
    })
  }

  protected started(): void {}

  protected stopped(): void {
    this.#looks.stop()
    this.#unregister()
  }

  /** The log has something new. While events come all the time, each read waits for several. */
  told(): void {
    if (this.#nowMs() - this.#changedMs >= SHORTEST_PAUSE_MS) this.#changedNow()
    else this.#looks.due('read', SHORTEST_PAUSE_MS)
  }

  /** Notifications arrive from now on, or do not any more. */
  lookAtAll(): void {
    this.#looks.lookAtAll()
  }

  /** Opens the log, or prolongs it. */
  async register(): Promise<Position & { readonly isComplete: boolean }> {
    await this.#leaving
    const { dueMs, ...at } = await this.#openLog()
    this.#options.expectNews()
    this.#looks.expectNews()
    this.#tendIn(dueMs)
    return at
  }

  /** A position in a log that is complete from there on. */
  async head(call: Call): Promise<Position> {
    const { clock, pollMs } = this.#options
    for (let tries = 0; ; tries++) {
      const { log, seen, isComplete } = await this.register()
      if (isComplete) return { log, seen }
      const pauseMs = growingPauseMs(tries, { firstMs: SHORTEST_PAUSE_MS, longestMs: pollMs })
      await sleep(clock, pauseMs, { signal: call.signal })
      if (this.failure !== undefined) throw this.failure.error
    }
  }

  async picture(prefix: string, call: Call): Promise<LogPicture<Position>> {
    const { log } = await this.head(call)
    const { namespace, query } = this.#options
    const [now, ...holders] = (await query('holdersNow', [namespace, prefix])) as readonly EventRow[]
    return { at: { log, seen: String(now?.[3]) }, restart: `${log}/gap`, holders: holders.map(toldOf) }
  }

  readonly cursorOf = cursorOf
  readonly positionAt = positionAt

  protected async readFrom({ log, seen, page }: Position): Promise<LogPage<Position> | null> {
    const { namespace, query } = this.#options
    const rows = await query('readEvents', [
      namespace,
      log,
      arrayLiteral(seen.split('.')),
      page === undefined ? null : arrayLiteral(page.until.split('.')),
      page?.xid ?? '0',
      page?.no ?? '0',
      EVENTS_AT_ONCE,
    ])
    const [now, ...read] = rows as readonly EventRow[]
    if (now === undefined) return null
    const until = page?.until ?? now[3]
    const isLast = read.length < EVENTS_AT_ONCE
    const end: Position = { log, seen: until }
    const events = read.map((row, index) => {
      const [kind, xid, no, , , , , , leftMs] = row
      if (leftMs !== null && (kind === 'acquired' || kind === 'waiting')) this.#tendIn(Number(leftMs))
      const isEnd = isLast && index === read.length - 1
      return { event: toldOf(row), at: isEnd ? end : { log, seen, page: { until, xid, no } } }
    })
    return { events, next: isLast ? end : (events.at(-1)?.at ?? end), isLast }
  }

  async #openLog() {
    const { namespace, channel, query } = this.#options
    const [row] = await query('openLog', [namespace, channel])
    // The last watcher left meanwhile, and its `leaveLog` may have arrived first.
    if (this.size === 0) this.#unregister()
    const [log, isComplete, seen, dueMs] = row as readonly [string, boolean, string, string | null]
    return { log, seen, isComplete, dueMs: Number(dueMs ?? PROLONGED_EVERY_MS) }
  }

  /** The log stays open for a while: a watcher that comes back in time has missed nothing. */
  #unregister(): void {
    if (this.failure !== undefined) return
    const { namespace, channel, query } = this.#options
    this.#leaving = query('leaveLog', [namespace, channel]).catch(ignore)
  }

  /** Prolongs the log, and sees to sessions that are over. */
  async #tend(): Promise<void> {
    const { pollMs, sweep } = this.#options
    const { dueMs } = await this.#openLog()
    if (dueMs === 0) await sweep()
    this.#tendIn(dueMs === 0 ? pollMs : dueMs)
  }

  #changedNow(): void {
    this.#changedMs = this.#nowMs()
    this.changed()
  }

  #nowMs(): number {
    return this.#options.clock.monotonicMs()
  }

  #tendIn(ms: number): void {
    this.#looks.due('tend', Math.min(PROLONGED_EVERY_MS, Math.max(SHORTEST_PAUSE_MS, ms + 1)))
  }
}

/** See `sql/event-log.ts`. */
type EventRow = readonly [
  kind: WatchEventKind,
  xid: string,
  no: string,
  name: string,
  id: string,
  holder: string,
  owner: string | null,
  token: string | null,
  leftMs: string | null,
]

function toldOf([kind, , , name, id, holder, owner, token]: EventRow): ToldEvent {
  return toldEvent({ kind, name, id, holder, owner, token: token === null ? null : BigInt(token) })
}

const NUMBER = '\\d{1,18}'
const SNAPSHOT = `${NUMBER}(?:\\.${NUMBER}){0,${MOST_OPEN}}`
const CURSOR = new RegExp(`^([\\da-f-]{36})/(${SNAPSHOT})(?:/(${SNAPSHOT})/(${NUMBER})\\.(${NUMBER}))?$`)

export function cursorOf({ log, seen, page }: Position): string {
  const end = page === undefined ? '' : `/${page.until}/${page.xid}.${page.no}`
  const cursor = `${log}/${seen}${end}`
  return CURSOR.test(cursor) ? cursor : `${log}/gap`
}

/** Null for anything that was not handed out as a cursor to go on from. */
export function positionAt(cursor: string): Position | null {
  const [, log, seen, until, xid, no] = CURSOR.exec(cursor) ?? []
  if (log === undefined || seen === undefined) return null
  if (until === undefined || xid === undefined || no === undefined) return { log, seen }
  return { log, seen, page: { until, xid, no } }
}
