/**
 * Reads the log of a namespace (`scripts/watching.ts` has its layout), once for all watchers of this process.
 *
 *   idle ──a watcher joins──▶ reading: woken by messages, keeps the log open, looks at names that are due   [join]
 *   reading ──the last watcher leaves──▶ idle                                                             [#stop]
 *
 * What may go wrong between two steps: a message is lost, or the subscription is interrupted (it reads when the subscription
 * is back, and whenever it prolongs); the server cannot be reached (it reads on later, from where it was); the log is gone or
 * has been shortened (it starts at the end of the log of now, and watchers find a gap).
 */

import { callWith } from '../../base/aborting.ts'
import type { Timer } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { isHoldfastError } from '../../base/errors.ts'
import type { RedisReply, RedisScript, Subscription } from '../../clients/redis/index.ts'
import type { Call } from '../../spi.ts'
import type { Engine } from './engine.ts'
import { readEvent } from './looking.ts'
import { RecentEvents } from './recent-events.ts'
import { deniedToWatch } from './refusals.ts'
import { lookAtDueScript, openLogScript, readLogScript, WATCHED_FOR_MS } from './scripts/watching.ts'
import type { Entry, EventSource, Head, Position } from './watch.ts'

const PROLONGED_EVERY_MS = WATCHED_FOR_MS / 3
const EVENTS_AT_ONCE = 256
/** Names that are looked at in one call: a few milliseconds of the server’s time at most. */
const NAMES_AT_ONCE = 100
/** Names that become due within it are looked at together. What is due already does not wait for it. */
const SHORTEST_PAUSE_MS = 200
const RETRY_MS = 500

/** One process's reading, from the first watcher to the last. */
interface Reading {
  readonly ending: AbortController
  subscription: Subscription | undefined
  prolonging: Timer | undefined
  retrying: Timer | undefined
  looking: Timer | undefined
  looksAtMs: number
  lookedAtMs: number
  isRunning: boolean
  isWoken: boolean
  isLooking: boolean
  isFinding: boolean
}

export class EventLog implements EventSource {
  readonly #engine: Engine
  /** The names in use, in pages. */
  readonly #names: (call: Call) => AsyncIterable<readonly string[]>
  readonly #recent = new RecentEvents()
  readonly #watchers = new Set<symbol>()
  #reading: Reading | undefined

  constructor(engine: Engine, names: (call: Call) => AsyncIterable<readonly string[]>) {
    this.#engine = engine
    this.#names = names
  }

  get changes(): number {
    return this.#recent.changes
  }

  join(): () => void {
    const watcher = Symbol('watcher')
    this.#watchers.add(watcher)
    this.#reading ??= this.#start()
    return () => {
      if (this.#watchers.delete(watcher) && this.#watchers.size === 0) this.#stop()
    }
  }

  /** Wakes the watchers, so that they find out. */
  close(): void {
    this.#watchers.clear()
    this.#stop()
    this.#recent.changed()
  }

  async head(call: Call): Promise<Head> {
    const reply = await this.#run(openLogScript, [this.#engine.random.id(), String(WATCHED_FOR_MS)], call)
    const [logId, at, nowMs, hasAll] = (reply as readonly RedisReply[]).map(String)
    const head = { logId: logId ?? '', at: at ?? '', nowMs: Number(nowMs) }
    const reading = this.#reading
    if (reading !== undefined) {
      if (this.#recent.last?.logId !== head.logId) {
        this.#recent.start(head)
        this.#wake(reading)
        this.#lookAfter(reading, 0)
      }
      if (hasAll !== '1') this.#findHolders(reading)
    }
    return head
  }

  async after(position: Position, call: Call): Promise<readonly Entry[] | null> {
    return this.#recent.after(position) ?? this.#read(position, call)
  }

  next(seen: number, call: Call): Promise<void> {
    return this.#recent.next(seen, call)
  }

  #start(): Reading {
    const reading: Reading = {
      ending: new AbortController(),
      subscription: undefined,
      prolonging: undefined,
      retrying: undefined,
      looking: undefined,
      looksAtMs: 0,
      lookedAtMs: Number.NEGATIVE_INFINITY,
      isRunning: false,
      isWoken: false,
      isLooking: false,
      isFinding: false,
    }
    this.#subscribe(reading)
    this.#prolongLater(reading)
    return reading
  }

  #stop(): void {
    const reading = this.#reading
    if (reading === undefined) return
    this.#reading = undefined
    reading.ending.abort()
    reading.subscription?.unsubscribe()
    for (const timer of [reading.prolonging, reading.retrying, reading.looking]) timer?.cancel()
    this.#recent.clear()
  }

  #subscribe(reading: Reading): void {
    const { connection, watchChannel } = this.#engine
    const wake = () => this.#wake(reading)
    const { signal } = reading.ending
    connection.subscribe(watchChannel, wake, wake, signal).then(
      (subscription) => {
        reading.subscription = subscription
        if (signal.aborted) subscription.unsubscribe()
        else wake()
      },
      (error: unknown) => this.#failed(reading, error, () => this.#subscribe(reading)),
    )
  }

  /** What cannot be done now is done later, unless trying again cannot help: then the watchers are told. */
  #failed(reading: Reading, error: unknown, again: () => void): void {
    if (this.#mayRetry(reading, error)) reading.retrying = this.#engine.clock.setTimer(RETRY_MS, again)
  }

  #mayRetry(reading: Reading, error: unknown): boolean {
    if (reading.ending.signal.aborted) return false
    const mayRetry = isHoldfastError(error, 'BACKEND_UNAVAILABLE')
    if (!mayRetry) this.#recent.fail(error)
    return mayRetry
  }

  #prolongLater(reading: Reading): void {
    reading.prolonging = this.#engine.clock.setTimer(PROLONGED_EVERY_MS, () => {
      this.#prolongLater(reading)
      this.#within(reading, (call) => this.head(call)).then(
        () => this.#wake(reading),
        // It is tried again before the time of the log is up.
        (error: unknown) => void this.#mayRetry(reading, error),
      )
    })
  }

  /** Reads what is new; what comes meanwhile is read afterwards. */
  #wake(reading: Reading): void {
    reading.isWoken = true
    if (reading.isRunning) return
    reading.isRunning = true
    this.#readAll(reading)
      .catch((error: unknown) => this.#failed(reading, error, () => this.#wake(reading)))
      .finally(() => {
        reading.isRunning = false
      })
  }

  async #readAll(reading: Reading): Promise<void> {
    while (reading.isWoken && !reading.ending.signal.aborted) {
      const { last } = this.#recent
      reading.isWoken = false
      if (last === null) return
      const entries = await this.#within(reading, (call) => this.#read(last, call))
      if (reading.ending.signal.aborted) return
      if (entries === null) {
        await this.#within(reading, (call) => this.head(call))
      } else if (this.#recent.last?.logId === last.logId) {
        for (const { ttlMs } of entries) if (ttlMs !== undefined) this.#lookAfter(reading, ttlMs)
        if (entries.length > 0) this.#recent.add(entries)
        if (entries.length === EVENTS_AT_ONCE) reading.isWoken = true
      }
    }
  }

  async #read({ logId, at }: Position, call: Call): Promise<readonly LoggedEntry[] | null> {
    const reply = await this.#run(readLogScript, [logId, at, String(EVENTS_AT_ONCE + 1)], call)
    if (!Array.isArray(reply)) return null
    return (reply as readonly (readonly [string, readonly string[]])[]).slice(1).map(([at, [, text]]) => {
      const { event = null, ttlMs } = readEvent(text ?? '', this.#engine.nameOf) ?? {}
      return { at, event, ...(event?.kind === 'acquired' && { ttlMs }) }
    })
  }

  /** Looks at what is due in so long, or earlier. */
  #lookAfter(reading: Reading, delayMs: number): void {
    const { clock } = this.#engine
    const nowMs = clock.monotonicMs()
    // Redis counts a key as gone when its time has passed, not when it has come.
    const dueMs = Math.max(nowMs + delayMs + 1, reading.lookedAtMs + SHORTEST_PAUSE_MS)
    if (reading.looking !== undefined && reading.looksAtMs <= dueMs) return
    reading.looking?.cancel()
    reading.looksAtMs = dueMs
    reading.looking = clock.setTimer(dueMs - nowMs, () => {
      reading.looking = undefined
      // A look in progress may have been answered before this name was known.
      if (reading.isLooking) return this.#lookAfter(reading, 0)
      reading.isLooking = true
      this.#look(reading)
        .then(
          (leftMs) => leftMs >= 0 && this.#reading === reading && this.#lookAfter(reading, leftMs),
          (error: unknown) => this.#mayRetry(reading, error) && this.#lookAfter(reading, RETRY_MS),
        )
        .finally(() => {
          reading.isLooking = false
        })
    })
  }

  /** Call after call until nothing is due; other calls get in between. Answers as the last of them. */
  async #look(reading: Reading): Promise<number> {
    let leftMs: number
    do {
      reading.lookedAtMs = this.#engine.clock.monotonicMs()
      leftMs = await this.#within(reading, (call) => this.#lookAt([], call))
    } while (leftMs === 0)
    return leftMs
  }

  /** Leases that were held before there was a log are remembered too. If it fails, the next to prolong does it again. */
  #findHolders(reading: Reading): void {
    if (reading.isFinding) return
    reading.isFinding = true
    const { keys, connection } = this.#engine
    const find = async (call: Call) => {
      for await (const names of this.#names(call)) {
        const locks = names.map((name) => connection.keyPrefix + keys.lock(name))
        for (let start = 0; start < locks.length; start += NAMES_AT_ONCE)
          await this.#lookAt(locks.slice(start, start + NAMES_AT_ONCE), call)
      }
      const leftMs = await this.#lookAt(['all'], call)
      if (leftMs >= 0) this.#lookAfter(reading, leftMs)
    }
    find(callWith(reading.ending.signal))
      .catch((error: unknown) => void this.#mayRetry(reading, error))
      .finally(() => {
        reading.isFinding = false
      })
  }

  /** Answers with the milliseconds until the next is due: 0 if there is more to look at now, negative if there is nothing. */
  async #lookAt(locks: readonly string[], call: Call): Promise<number> {
    return Number(
      await this.#run(lookAtDueScript, [this.#engine.setting, String(NAMES_AT_ONCE), ...locks], call),
    )
  }

  #run(script: RedisScript, args: readonly string[], call: Call): Promise<RedisReply> {
    const { connection, keys } = this.#engine
    return connection.run(script, [keys.watch], args, call.signal).catch((error: unknown) => {
      throw deniedToWatch(error)
    })
  }

  async #within<T>({ ending }: Reading, work: (call: Call) => Promise<T>): Promise<T> {
    const limit = new AbortController()
    const timer = this.#engine.clock.setTimer(defaults.callTimeoutMs, () =>
      limit.abort(new Error(`no answer within ${defaults.callTimeoutMs} ms`)),
    )
    try {
      return await work(callWith(AbortSignal.any([ending.signal, limit.signal])))
    } finally {
      timer.cancel()
    }
  }
}

interface LoggedEntry extends Entry {
  /** Of a grant. */
  readonly ttlMs?: number | undefined
}
