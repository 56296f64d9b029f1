/**
 * One timer for many requests that all have the same time to be answered: nearly all are answered in time.
 *
 * If this process was late itself, they are judged after what has arrived was read: otherwise all nodes would seem silent.
 */
import { type Clock, judgeLate } from '../../../base/clock.ts'

/** A request in flight. */
export interface Pending {
  /** By the monotonic clock. */
  readonly dueMs: number
  expire(): void
}

export class NodeTimeouts {
  readonly #clock: Clock
  readonly #afterMs: number
  /** In the order in which they are due. An array, because a Set would keep requests alive that came and went. */
  readonly #pending: Pending[] = []
  #isArmed = false

  constructor(clock: Clock, afterMs: number) {
    this.#clock = clock
    this.#afterMs = afterMs
  }

  /** Calls `expire` when the time is up, unless the request is removed before. */
  add(expire: () => void): Pending {
    const request = { dueMs: this.#clock.monotonicMs() + this.#afterMs, expire }
    this.#pending.push(request)
    if (!this.#isArmed) this.#arm(this.#afterMs)
    return request
  }

  /** False if its time was up before. */
  remove(request: Pending): boolean {
    const index = this.#pending.indexOf(request)
    if (index >= 0) this.#pending.splice(index, 1)
    return index >= 0
  }

  #arm(delayMs: number): void {
    this.#isArmed = true
    judgeLate(this.#clock, delayMs, (firedMs) => this.#look(firedMs))
  }

  #look(nowMs: number): void {
    const next = this.#pending.find(({ dueMs }) => dueMs > nowMs)
    this.#isArmed = false
    if (next !== undefined) this.#arm(next.dueMs - nowMs)
    const late = this.#pending.filter(({ dueMs }) => dueMs <= nowMs)
    for (const request of late) if (this.remove(request)) request.expire()
  }
}
