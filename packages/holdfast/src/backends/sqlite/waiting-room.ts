/**
 * Those of this process who wait for their turn. The file knows the line; here are the promises.
 *
 *   waiting ──handed over by this process──▶ granted              [granted]
 *   waiting ──woken by another process, or at a poll──▶ the file says: granted, gone, ended, or still waiting
 *   waiting ──its session ends──▶ session-gone                    [sessionEnded]
 *   waiting ──abandoned, or cancelled──▶ rejected                [abandoned, onAbort]
 */

import type { Clock } from '../../base/clock.ts'
import { publicIdOf } from '../../base/ids.ts'
import { cancelledCall } from '../../kit/backend-kit.ts'
import type { EnqueueResult } from '../../spi.ts'
import { unavailable } from './failures.ts'
import { type FilePoll, ifPossible, type Onlooker } from './poll.ts'
import type { Statements } from './statements.ts'

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
  readonly namespace: string
  readonly poll: FilePoll
}

interface Entry {
  readonly waiter: Waiter
  readonly stopListening: () => void
}

export class WaitingRoom implements Onlooker {
  readonly #options: WaitingRoomOptions
  /** By public id; usually one each. */
  readonly #entries = new Map<string, Entry[]>()
  #newcomers = false

  constructor(options: WaitingRoomOptions) {
    this.#options = options
    options.poll.add(this)
  }

  get isIdle(): boolean {
    return this.#entries.size === 0
  }

  /** Whoever adds somebody calls `armForNewcomers` afterwards. */
  add(waiter: Waiter): void {
    const { signal } = waiter
    const onAbort = () => this.#leave(entry, () => waiter.reject(cancelledCall('sqlite', signal, 'unknown')))
    const entry = { waiter, stopListening: () => signal.removeEventListener('abort', onAbort) }
    const id = publicIdOf(waiter.attempt)
    this.#entries.set(id, [...(this.#entries.get(id) ?? []), entry])
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
    this.#newcomers = true
  }

  armForNewcomers(): void {
    if (this.#newcomers) this.#options.poll.arm()
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

  look(): boolean {
    return this.#ask(this.#all())
  }

  close(error: unknown): void {
    for (const entry of this.#all()) this.#leave(entry, () => entry.waiter.reject(error))
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
    if (this.isIdle) this.#options.poll.arm()
  }
}
