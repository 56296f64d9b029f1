/**
 * Those of this process who wait for their turn. The database knows the line; here are the promises.
 *
 *   sending ──its place in line is confirmed──▶ waiting           [placed]
 *   sending | waiting ──handed over by this process, or told──▶ granted   [granted]
 *   waiting ──at a look──▶ granted, gone, missing, or still waiting       [#look]
 *   sending | waiting ──its session ends──▶ session-gone          [sessionEnded]
 *   sending | waiting ──abandoned, or cancelled──▶ rejected      [abandoned, onAbort]
 *
 * A waiter is here before its request is sent: the news of its turn may overtake the answer.
 *
 * One timer serves them all. It looks at a name when time alone may have changed something there: a session of a holder,
 * or of the first in line, is over, or the name opens. While notifications do not arrive, it looks at everybody at
 * intervals as well.
 */

import type { Clock, Timer } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { publicIdOf, type Random } from '../../base/ids.ts'
import { arrayLiteral, type Parameter, type Row } from '../../clients/postgres/index.ts'
import type { EnqueueResult } from '../../spi.ts'
import type { Statistics } from './statistics.ts'

export interface Waiter {
  readonly name: string
  readonly attempt: string
  readonly session: number
  readonly signal: AbortSignal
  /** Makes the session's grant of what the database recorded. */
  granted(token: bigint, data: string | null): EnqueueResult<'fenced'>
  resolve(result: EnqueueResult<'fenced'>): void
  reject(error: unknown): void
}

export interface WaitingRoomOptions {
  readonly clock: Clock
  readonly random: Random
  readonly statistics: Statistics
  readonly pollMs: number
  /** Names that are due; sessions, names and attempts of those who ask. */
  readonly tend: (parameters: readonly Parameter[]) => Promise<readonly Row[]>
  /** Whether those who wait are told; otherwise they poll. */
  readonly isTold: () => boolean
}

/** Everybody who waits for a name looks when its holder's time is up; not all at the same moment. */
const SPREAD_MS = 3
/** What is due again at once was not settled by the last look; it is looked at again, but not in a hot loop. */
const SHORTEST_PAUSE_MS = 10

export interface Entry {
  readonly waiter: Waiter
  readonly stopListening: () => void
  isPlaced: boolean
  isSettled: boolean
}

export class WaitingRoom {
  readonly #options: WaitingRoomOptions
  readonly #entries = new Map<string, Entry[]>()
  /** When each name is worth a look, on the monotonic clock. */
  readonly #dueMs = new Map<string, number>()
  #timer: { readonly handle: Timer; readonly dueMs: number } | undefined
  #pollMs: number | undefined
  #isLooking = false
  #closed = false

  constructor(options: WaitingRoomOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#entries.size
  }

  add(waiter: Waiter): Entry {
    const { signal } = waiter
    const onAbort = () =>
      this.leave(entry, () =>
        waiter.reject(
          new BackendUnavailableError('postgres', 'the wait was cancelled', 'unknown', {
            cause: signal.reason,
          }),
        ),
      )
    const stopListening = () => signal.removeEventListener('abort', onAbort)
    const entry: Entry = { waiter, stopListening, isPlaced: false, isSettled: false }
    const id = publicIdOf(waiter.attempt)
    this.#entries.set(id, [...(this.#entries.get(id) ?? []), entry])
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
    return entry
  }

  /** It stands in line, and time alone may change something in so many milliseconds. */
  placed(entry: Entry, dueInMs: number | null): void {
    if (entry.isSettled) return
    entry.isPlaced = true
    if (dueInMs !== null) this.#arm(this.#setDue(entry.waiter.name, dueInMs))
    else this.#arm()
  }

  leave(entry: Entry, settle?: () => void): void {
    if (entry.isSettled) return
    entry.isSettled = true
    entry.stopListening()
    const id = publicIdOf(entry.waiter.attempt)
    const others = (this.#entries.get(id) ?? []).filter((each) => each !== entry)
    if (others.length > 0) this.#entries.set(id, others)
    else this.#entries.delete(id)
    settle?.()
    if (this.#entries.size > 0) return
    this.#dueMs.clear()
    this.#timer?.handle.cancel()
    this.#timer = undefined
  }

  /** `id`: the attempt, or its public half. */
  granted(session: number, id: string, token: bigint, data: string | null): void {
    for (const entry of this.#entries.get(publicIdOf(id)) ?? []) {
      const { waiter } = entry
      if (waiter.session === session) this.leave(entry, () => waiter.resolve(waiter.granted(token, data)))
    }
  }

  sessionEnded(session: number): void {
    for (const entry of this.#all()) {
      const { waiter } = entry
      if (waiter.session === session) this.leave(entry, () => waiter.resolve({ kind: 'session-gone' }))
    }
  }

  abandoned(session: number, attempt: string): void {
    const error = new BackendUnavailableError('postgres', 'the attempt was abandoned', 'not-applied')
    for (const entry of this.#entries.get(publicIdOf(attempt)) ?? [])
      if (entry.waiter.session === session) this.leave(entry, () => entry.waiter.reject(error))
  }

  /** Something may have been missed. */
  lookAtAll(): void {
    this.#pollMs = this.#nowMs()
    this.#arm()
  }

  close(error: unknown): void {
    this.#closed = true
    for (const entry of this.#all()) this.leave(entry, () => entry.waiter.reject(error))
  }

  /**
   * Sets the timer to the next time at which there may be something to see: that of one name, if all others have been
   * seen to already, and otherwise that of the first of all.
   */
  #arm(ofOneMs?: number): void {
    if (this.#entries.size === 0 || this.#isLooking || this.#closed) return
    const { clock, isTold } = this.#options
    if (this.#pollMs === undefined && !isTold()) this.#pollMs = this.#nowMs() + this.#pollInMs()
    const nextMs = this.#timer === undefined ? this.#firstDueMs() : (ofOneMs ?? Infinity)
    const dueMs = Math.min(this.#pollMs ?? Infinity, nextMs)
    if (dueMs === Infinity || (this.#timer !== undefined && this.#timer.dueMs <= dueMs)) return
    this.#timer?.handle.cancel()
    const handle = clock.setTimer(Math.max(0, dueMs - this.#nowMs()), () => {
      this.#timer = undefined
      void this.#look()
    })
    this.#timer = { handle, dueMs }
  }

  async #look(): Promise<void> {
    const nowMs = this.#nowMs()
    const due = new Set([...this.#dueMs].filter(([, atMs]) => atMs <= nowMs).map(([name]) => name))
    const isPoll = this.#pollMs !== undefined && this.#pollMs <= nowMs
    if (isPoll) this.#pollMs = undefined
    const asking = this.#all().filter(({ isPlaced, waiter }) => isPlaced && (isPoll || due.has(waiter.name)))
    for (const name of due) this.#dueMs.delete(name)
    if (asking.length > 0) {
      this.#isLooking = true
      this.#options.statistics.looks++
      const waiters = asking.map(({ waiter }) => waiter)
      const names = new Set(waiters.map(({ name }) => name))
      try {
        const rows = await this.#options.tend([
          arrayLiteral([...due].filter((name) => names.has(name))),
          arrayLiteral(waiters.map(({ session }) => session)),
          arrayLiteral(waiters.map(({ name }) => name)),
          arrayLiteral(waiters.map(({ attempt }) => attempt)),
        ])
        for (const row of rows) this.#read(row as TendRow)
      } catch {
        // Looking again will tell, as soon as the server can be reached.
        for (const name of names) this.#setDue(name, this.#pollInMs())
        if (isPoll) this.#pollMs = this.#nowMs() + this.#pollInMs()
      }
      this.#isLooking = false
    }
    this.#arm()
  }

  #read([kind, name, attempt, token, data, ms, session]: TendRow): void {
    if (kind === 'due') {
      if (ms !== null) this.#setDue(name, Number(ms))
    } else if (kind === 'handed' || kind === 'granted') {
      this.granted(Number(session), attempt, BigInt(token), data)
    } else if (kind === 'gone') {
      this.sessionEnded(Number(session))
    } else {
      const why = `the place in line is gone (${data ?? 'deleted'})`
      const error = new BackendUnavailableError('postgres', why, 'not-applied')
      for (const entry of this.#entries.get(publicIdOf(attempt)) ?? [])
        if (entry.waiter.session === Number(session)) this.leave(entry, () => entry.waiter.reject(error))
    }
  }

  #setDue(name: string, inMs: number): number {
    const pauseMs = Math.max(SHORTEST_PAUSE_MS, inMs) + this.#options.random.fraction() * SPREAD_MS
    const dueMs = this.#nowMs() + pauseMs
    this.#dueMs.set(name, dueMs)
    return dueMs
  }

  #firstDueMs(): number {
    let firstMs = Infinity
    for (const dueMs of this.#dueMs.values()) firstMs = Math.min(firstMs, dueMs)
    return firstMs
  }

  #pollInMs(): number {
    return this.#options.pollMs * (1 + this.#options.random.fraction())
  }

  #nowMs(): number {
    return this.#options.clock.monotonicMs()
  }

  #all(): Entry[] {
    return [...this.#entries.values()].flat()
  }
}

/** See `tend` in `sql/waiting.ts`. */
type TendRow = readonly [
  kind: string,
  name: string,
  attempt: string,
  token: string,
  data: string | null,
  ms: string | null,
  session: string,
]
