/**
 * The watchers of a process share a registration and a reader of the log; `sql/events.ts` says how the log is written. The
 * reader reads when a notification comes, or at intervals while none can come, and feeds every watcher.
 */

import { unlessAborted } from '../../base/aborting.ts'
import { type Clock, sleep, type Timer } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import type { Random } from '../../base/ids.ts'
import { arrayLiteral, type Parameter, type Row } from '../../clients/postgres/index.ts'
import { cancelledCall } from '../../kit/backend-kit.ts'
import type { Call, WatchEventKind } from '../../spi.ts'
import { laterOf, type Position, type Snapshot, snapshotOf, textOf } from './log-position.ts'
import { WATCHED_FOR_MS } from './sql/events.ts'

const PROLONGED_EVERY_MS = WATCHED_FOR_MS / 3
const EVENTS_AT_ONCE = 1_000
/** Pages and events that a watcher has not taken yet. With more, it reads them by itself later. */
const MOST_WAITING = 5_000
const SHORTEST_PAUSE_MS = 10

type LogStatement = 'watchLog' | 'unwatchLog' | 'readLog' | 'watchedHolders' | 'writers' | 'snapshot'

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
  /** Whether notifications come; otherwise it polls. */
  readonly isTold: () => boolean
}

export interface LoggedEvent {
  readonly kind: WatchEventKind
  readonly xid: bigint
  readonly no: bigint
  readonly name: string
  readonly id: string
  readonly holder: string
  readonly owner: string | null
  readonly token: bigint | null
  readonly leftMs: number
}

/** What is new, until `until`, in the order of the log. */
export interface LogPage {
  readonly events: readonly LoggedEvent[]
  readonly until: Snapshot
  /** Where to go on. */
  readonly next: Position
  readonly isLast: boolean
}

/** What the reader has for one watcher. */
export class Feed {
  pages: LogPage[] = []
  /** The reader was here when it began to feed this watcher; null: it has not begun. */
  since: Snapshot | null = null
  isBroken = false
  wake: () => void = () => {}
  #waiting = 0

  restart(since: Snapshot | null): void {
    this.break()
    this.isBroken = false
    this.since = since
  }

  push(page: LogPage): void {
    if (this.isBroken) return
    this.pages.push(page)
    this.#waiting += 1 + page.events.length
    if (this.#waiting > MOST_WAITING) this.break()
    this.wake()
  }

  break(): void {
    this.isBroken = true
    this.pages = []
    this.#waiting = 0
    this.wake()
  }

  next(call: Call): Promise<void> {
    return new Promise((resolve) => {
      const untie = call.onCancel(() => this.wake())
      this.wake = () => {
        this.wake = () => {}
        untie()
        resolve()
      }
      if (call.cancelled) this.wake()
    })
  }

  /** All that is there; empty if it is broken. */
  take(): readonly LogPage[] {
    const { pages } = this
    this.pages = []
    this.#waiting = 0
    return pages
  }
}

/** The watchers of this process: keeps the log open for them, reads it, and sees to what is over. */
export class Watchers {
  readonly #options: WatchersOptions
  readonly #feeds = new Set<Feed>()
  /** Of the reader; null: no watcher follows it. */
  #at: Position | null = null
  #isReading = false
  #mustRead = false
  #poll: Timer | undefined
  #tending: { readonly timer: Timer; readonly dueMs: number } | undefined
  /** Settles when this log has the events of all transactions which can still commit. */
  #completion: { readonly log: string; readonly done: Promise<void> } | undefined
  #leaving: Promise<unknown> = Promise.resolve()
  #closed: unknown

  constructor(options: WatchersOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#feeds.size
  }

  join(): Feed {
    const feed = new Feed()
    this.restart(feed)
    this.#feeds.add(feed)
    return feed
  }

  leave(feed: Feed): void {
    if (!this.#feeds.delete(feed) || this.#feeds.size > 0) return
    this.#rest()
    this.#unregister()
  }

  close(error: unknown): void {
    this.#closed = error
    this.#rest()
    for (const feed of this.#feeds) feed.break()
  }

  /** What one watcher asks, for as long as its call is not cancelled. */
  ask<T>(call: Call, work: () => Promise<T>): Promise<T> {
    if (this.#closed !== undefined) throw this.#closed
    return unlessAborted(work(), call.signal, () => cancelledCall('postgres', call.signal, 'unknown'))
  }

  /** A watcher that has begun goes on when the server can be reached again. */
  async askUntilAnswered<T>(call: Call, work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await this.ask(call, work)
      } catch (error) {
        if (this.#closed !== undefined) throw this.#closed
        if (call.cancelled || !(error instanceof BackendUnavailableError)) throw error
      }
      const { clock, pollMs } = this.#options
      await sleep(clock, pollMs, { signal: call.signal, keepsProcessAlive: true })
    }
  }

  /** There may be something new. */
  look(): void {
    if (this.#at === null) return
    this.#mustRead = true
    if (!this.#isReading) void this.#readAll()
  }

  /** From here on the feed has everything that is not seen at the position. False: read on to a later one first. */
  follow(feed: Feed, at: Position): boolean {
    if (this.#at === null) {
      this.#at = at
      for (const each of this.#feeds) each.since ??= at.seen
      this.look()
    }
    return this.#at.log === at.log && laterOf(at.seen, feed.since ?? at.seen) === at.seen
  }

  restart(feed: Feed): void {
    feed.restart(this.#at?.page?.until ?? this.#at?.seen ?? null)
  }

  /** Null: the log does not have what comes after it. */
  async read(at: Position): Promise<LogPage | null> {
    const { seen, page, log } = at
    const rows = await this.#options.query('readLog', [
      this.#options.namespace,
      log,
      String(seen.from),
      arrayLiteral(seen.open.map(String)),
      page === undefined ? null : textOf(page.until),
      String(page?.xid ?? 0n),
      String(page?.no ?? 0n),
      EVENTS_AT_ONCE,
    ])
    const [now, ...events] = rows as readonly EventRow[]
    if (now === undefined) return null
    const until = page?.until ?? snapshotOf(now[3])
    const read = events.map(eventOf)
    const last = read.at(-1)
    if (last === undefined || read.length < EVENTS_AT_ONCE)
      return { events: read, until, next: { log, seen: laterOf(seen, until) }, isLast: true }
    return { events: read, until, next: afterEvent(at, until, last), isLast: false }
  }

  /** Opens the log, or prolongs it; its id. */
  async keepOpen(): Promise<string> {
    await this.#leaving
    const { log, dueMs } = await this.#watchLog()
    this.#options.expectNews()
    this.#tendIn(dueMs)
    return log
  }

  async #watchLog(): Promise<{ readonly log: string; readonly dueMs: number }> {
    const { namespace, channel, query } = this.#options
    const [row] = await query('watchLog', [namespace, channel])
    // The last watcher left meanwhile, and its `unwatchLog` may have arrived first.
    if (this.#feeds.size === 0) this.#unregister()
    return { log: String(row?.[0]), dueMs: Number(row?.[1] ?? PROLONGED_EVERY_MS) }
  }

  /** The log stays open for a while: a watcher that comes back in time has missed nothing. */
  #unregister(): void {
    if (this.#closed !== undefined) return
    const { namespace, channel, query } = this.#options
    this.#leaving = query('unwatchLog', [namespace, channel]).catch(() => {})
  }

  /** A position in a log that is complete from there on. */
  async head(): Promise<Position> {
    const log = await this.#openComplete()
    const [row] = await this.#options.query('snapshot', [''])
    return { log, seen: snapshotOf(String(row?.[0])) }
  }

  async holders(prefix: string): Promise<{ readonly at: Position; readonly events: readonly LoggedEvent[] }> {
    const log = await this.#openComplete()
    const { namespace, query } = this.#options
    const [now, ...holders] = (await query('watchedHolders', [namespace, prefix])) as readonly EventRow[]
    return { at: { log, seen: snapshotOf(String(now?.[3])) }, events: holders.map(eventOf) }
  }

  async #openComplete(): Promise<string> {
    const log = await this.keepOpen()
    if (this.#completion?.log !== log) {
      const completion = { log, done: this.#writersEnd() }
      this.#completion = completion
      completion.done.catch(() => {
        if (this.#completion === completion) this.#completion = undefined
      })
    }
    await this.#completion.done
    return log
  }

  /**
   * A transaction that looked for the log before it was open logs nothing. So those that were writing then must end first.
   * The wait itself ends when no watcher is left.
   */
  async #writersEnd(): Promise<void> {
    const { clock, pollMs, query } = this.#options
    let writers = await query('writers', [null])
    for (let pauseMs = SHORTEST_PAUSE_MS; writers.length > 0; pauseMs = Math.min(2 * pauseMs, pollMs)) {
      await sleep(clock, pauseMs)
      if (this.#closed !== undefined) throw this.#closed
      if (this.#feeds.size === 0) throw new Error('no watcher is left')
      writers = await query('writers', [arrayLiteral(writers.map(([id]) => String(id)))])
    }
  }

  async #readAll(): Promise<void> {
    this.#isReading = true
    this.#poll?.cancel()
    // While events come all the time, each read waits for several.
    let hasFailed = false
    while (this.#mustRead && this.#at !== null && !hasFailed) {
      this.#mustRead = false
      const at: Position = this.#at
      try {
        const page = await this.read(at)
        if (this.#at !== at) break
        if (page === null) this.#breakAll()
        else {
          this.#at = page.next
          this.#publish(page)
          // The last page has nothing that was announced while the pages before it were read.
          if (!page.isLast || at.page !== undefined) this.#mustRead = true
          else if (page.events.length > 0) await sleep(this.#options.clock, SHORTEST_PAUSE_MS)
        }
      } catch (error) {
        hasFailed = true
        // They ask themselves, and throw what they get.
        if (!(error instanceof BackendUnavailableError)) this.#breakAll()
      }
    }
    this.#isReading = false
    if (this.#at === null) return
    if (this.#mustRead && !hasFailed) this.look()
    else if (hasFailed || !this.#options.isTold()) this.#pollLater()
  }

  #publish(page: LogPage): void {
    for (const feed of this.#feeds) feed.push(page)
    for (const { kind, leftMs } of page.events)
      if (kind === 'acquired' || kind === 'waiting') this.#tendIn(leftMs)
  }

  #breakAll(): void {
    this.#at = null
    for (const feed of this.#feeds) feed.break()
  }

  #pollLater(): void {
    const { clock, pollMs, random } = this.#options
    this.#poll?.cancel()
    this.#poll = clock.setTimer(pollMs * (1 + random.fraction()), () => this.look())
  }

  /** Prolongs the log, and sees to sessions that are over: in that time, unless it is to be earlier anyway. */
  #tendIn(ms: number): void {
    if (this.#feeds.size === 0 || this.#closed !== undefined) return
    const { clock } = this.#options
    const delayMs = Math.min(PROLONGED_EVERY_MS, Math.max(SHORTEST_PAUSE_MS, ms + 1))
    const dueMs = clock.monotonicMs() + delayMs
    if (this.#tending !== undefined && this.#tending.dueMs <= dueMs) return
    this.#tending?.timer.cancel()
    // A program that watches is not at its end.
    const timer = clock.setTimer(delayMs, () => void this.#tend(), { keepsProcessAlive: true })
    this.#tending = { timer, dueMs }
  }

  async #tend(): Promise<void> {
    this.#tending = undefined
    const { pollMs, sweep } = this.#options
    try {
      const { dueMs } = await this.#watchLog()
      if (dueMs === 0) await sweep()
      this.#tendIn(dueMs === 0 ? pollMs : dueMs)
    } catch {
      this.#tendIn(pollMs)
    }
    this.look()
  }

  #rest(): void {
    this.#at = null
    this.#poll?.cancel()
    this.#tending?.timer.cancel()
    this.#tending = undefined
  }
}

export function afterEvent({ log, seen }: Position, until: Snapshot, { xid, no }: LoggedEvent): Position {
  return { log, seen, page: { until, xid, no } }
}

/** See `sql/events.ts`. */
type EventRow = readonly [
  kind: WatchEventKind,
  xid: string | null,
  no: string | null,
  name: string,
  id: string,
  holder: string,
  owner: string | null,
  token: string | null,
  leftMs: string | null,
]

function eventOf([kind, xid, no, name, id, holder, owner, token, leftMs]: EventRow): LoggedEvent {
  return {
    kind,
    xid: BigInt(xid ?? 0),
    no: BigInt(no ?? 0),
    name,
    id,
    holder,
    owner,
    token: token === null ? null : BigInt(token),
    leftMs: Number(leftMs ?? Infinity),
  }
}
