/**
 * Those of this process who wait for their turn. The file knows the line; here are the promises.
 *
 *   waiting ──handed over by this process──▶ granted              [granted]
 *   waiting ──woken by another process, or at a look──▶ the file says: granted, gone, ended, or still waiting
 *   waiting ──its session ends──▶ session-gone                    [sessionEnded]
 *   waiting ──abandoned, or called off──▶ rejected                [abandoned, onAbort]
 *
 * One timer serves them all. It looks at the latest after the poll interval, for wake-ups that got lost, and otherwise
 * when time alone may have changed something: a session expires, or a name opens. A look that finds that nobody has
 * written to the file since the last asks nothing else, so 1,000 waiters cost as little as one (T28).
 */
import { calledOff } from '../../core/backend-kit.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import { publicIdOf, type Random } from '../../core/ids.ts'
import type { EnqueueResult } from '../../spi.ts'
import { unavailable } from './failures.ts'
import type { Statements } from './statements.ts'
import type { Statistics } from './statistics.ts'

export interface Waiter {
  readonly name: string
  readonly attempt: string
  readonly session: number
  readonly signal: AbortSignal
  /** Makes the session's grant of what the file recorded. */
  granted(token: bigint, data: string | null): EnqueueResult<'fenced'>
  resolve(result: EnqueueResult<'fenced'>): void
  reject(error: unknown): void
}

export interface WaitingRoomOptions {
  readonly sql: Statements
  readonly clock: Clock
  readonly random: Random
  readonly statistics: Statistics
  readonly namespace: string
  readonly pollMs: number
  /** Does in a transaction what time has brought about. */
  readonly catchUp: () => Promise<void>
}

/** Everybody who waits looks when a session expires; not all at the same moment. */
const SPREAD_MS = 2

interface Entry {
  readonly waiter: Waiter
  readonly stopListening: () => void
}

export class WaitingRoom {
  readonly #options: WaitingRoomOptions
  /** By public id; usually one each. */
  readonly #entries = new Map<string, Entry[]>()
  #timer: { readonly handle: Timer; readonly dueMs: number } | undefined
  #newcomers = false
  /** The state of the file that has been seen in full. */
  #seenVersion: number | undefined
  /** While it runs, and until the next poll after it has failed, what is due is no reason to look again. */
  #catchUp: 'idle' | 'running' | 'failed' = 'idle'

  constructor(options: WaitingRoomOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#entries.size
  }

  /** Whoever adds somebody calls `armForNewcomers` afterwards. */
  add(waiter: Waiter): void {
    const { signal } = waiter
    const onAbort = () => this.#leave(entry, () => waiter.reject(calledOff('sqlite', signal, 'unknown')))
    const entry = { waiter, stopListening: () => signal.removeEventListener('abort', onAbort) }
    const id = publicIdOf(waiter.attempt)
    this.#entries.set(id, [...(this.#entries.get(id) ?? []), entry])
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
    this.#newcomers = true
  }

  armForNewcomers(): void {
    if (this.#newcomers) this.#arm()
    this.#newcomers = false
  }

  /** False if nobody here waits for it. */
  granted(session: number, attempt: string, token: bigint, data: string | null): boolean {
    return this.#settle(session, attempt, (waiter) => waiter.resolve(waiter.granted(token, data)))
  }

  sessionEnded(session: number): void {
    for (const entry of this.#all()) {
      const { waiter } = entry
      if (waiter.session === session) this.#leave(entry, () => waiter.resolve({ kind: 'session-gone' }))
    }
  }

  abandoned(session: number, attempt: string): void {
    const error = unavailable('the attempt was abandoned', 'not-applied')
    this.#settle(session, attempt, (waiter) => waiter.reject(error))
  }

  /** Somebody says that these have been granted; the file knows. */
  wake(ids: readonly string[]): void {
    this.#ask(ids.flatMap((id) => this.#entries.get(id) ?? []))
  }

  close(error: unknown): void {
    for (const entry of this.#all()) this.#leave(entry, () => entry.waiter.reject(error))
  }

  /** Sets the timer to the next time at which there may be something to see. */
  #arm(): void {
    if (this.#entries.size === 0) return
    const { clock, random, pollMs } = this.#options
    const nowMs = clock.monotonicMs()
    let dueMs = this.#timer?.dueMs ?? nowMs + pollMs * (1 + random.fraction())
    if (this.#catchUp === 'idle') {
      const eventMs = Math.max(nowMs, this.#nextDueMs()) + random.fraction() * SPREAD_MS
      dueMs = Math.min(dueMs, eventMs)
    }
    if (this.#timer !== undefined && this.#timer.dueMs <= dueMs) return
    this.#timer?.handle.cancel()
    const handle = clock.setTimer(dueMs - nowMs, () => {
      this.#timer = undefined
      this.#look()
    })
    this.#timer = { handle, dueMs }
  }

  #look(): void {
    const { sql, clock, statistics } = this.#options
    statistics.polls++
    const version = ifPossible(() => sql.dataVersion.first()?.data_version)
    if (version === undefined || version !== this.#seenVersion) {
      if (this.#ask(this.#all())) this.#seenVersion = version
    }
    if (this.#catchUp === 'failed') this.#catchUp = 'idle'
    if (this.#catchUp === 'idle' && this.#nextDueMs() <= clock.monotonicMs()) this.#startCatchingUp()
    this.#arm()
  }

  #startCatchingUp(): void {
    this.#catchUp = 'running'
    const end = (state: 'idle' | 'failed') => {
      this.#catchUp = state
      this.#arm()
    }
    this.#options.catchUp().then(
      () => end('idle'),
      () => end('failed'),
    )
  }

  #nextDueMs(): number {
    const due = ifPossible(() => this.#options.sql.nextDue.first())
    return Math.min(due?.expiry ?? Infinity, due?.opening ?? Infinity)
  }

  /** Looks up what has become of these; who is still in line stays. False: the file could not be read. */
  #ask(entries: readonly Entry[]): boolean {
    if (entries.length === 0) return true
    const { sql, clock, namespace } = this.#options
    const asked = JSON.stringify(entries.map(({ waiter }) => [waiter.session, waiter.name, waiter.attempt]))
    const outcomes = ifPossible(() => sql.outcomes.all(asked, namespace, clock.monotonicMs()))
    for (const { index, alive, token, data, mark } of outcomes ?? []) {
      const entry = entries[Number(index)]
      if (entry === undefined) continue
      const { waiter } = entry
      this.#leave(entry, () => {
        if (alive !== 1n) waiter.resolve({ kind: 'session-gone' })
        else if (token !== null) waiter.resolve(waiter.granted(token, data))
        else waiter.reject(unavailable(`the place in line is gone (${mark ?? 'deleted'})`, 'not-applied'))
      })
    }
    return outcomes !== undefined
  }

  #all(): Entry[] {
    return [...this.#entries.values()].flat()
  }

  #settle(session: number, attempt: string, settle: (waiter: Waiter) => void): boolean {
    const beside = this.#entries.get(publicIdOf(attempt)) ?? []
    const meant = beside.filter(({ waiter }) => waiter.session === session && waiter.attempt === attempt)
    for (const entry of meant) this.#leave(entry, () => settle(entry.waiter))
    return meant.length > 0
  }

  #leave(entry: Entry, settle: () => void): void {
    const id = publicIdOf(entry.waiter.attempt)
    const beside = this.#entries.get(id)
    if (!beside?.includes(entry)) return
    const others = beside.filter((each) => each !== entry)
    if (others.length > 0) this.#entries.set(id, others)
    else this.#entries.delete(id)
    entry.stopListening()
    settle()
    if (this.#entries.size > 0) return
    this.#timer?.handle.cancel()
    this.#timer = undefined
  }
}

/** Looking changes nothing: what fails now is seen at the next look. */
function ifPossible<T>(look: () => T): T | undefined {
  try {
    return look()
  } catch {
    return undefined
  }
}
