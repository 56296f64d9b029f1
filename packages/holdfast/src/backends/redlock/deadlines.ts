/**
 * Many calls that all have the same time, and one timer for them: nearly all are answered in time, and a timer for each
 * would cost more than the rest of the call. The timer is set for the first of them, and looks for the next one then.
 */
import type { Clock } from '../../core/clock.ts'

export interface Deadline {
  isOver: boolean
}

interface Entry extends Deadline {
  readonly dueMs: number
  readonly expire: () => void
}

export class Deadlines {
  readonly #clock: Clock
  readonly #afterMs: number
  #entries: Entry[] = []
  #isArmed = false

  constructor(clock: Clock, afterMs: number) {
    this.#clock = clock
    this.#afterMs = afterMs
  }

  /** Calls `expire` when the time is up, unless it is marked as over before. */
  add(expire: () => void): Deadline {
    const entry = { isOver: false, expire, dueMs: this.#clock.monotonicMs() + this.#afterMs }
    this.#entries.push(entry)
    if (!this.#isArmed) this.#arm(this.#afterMs)
    return entry
  }

  #arm(delayMs: number): void {
    this.#isArmed = true
    this.#clock.setTimer(delayMs, () => this.#look())
  }

  #look(): void {
    this.#isArmed = false
    const nowMs = this.#clock.monotonicMs()
    const pending = this.#entries.filter(({ isOver }) => !isOver)
    this.#entries = pending.filter(({ dueMs }) => dueMs > nowMs)
    const [next] = this.#entries
    if (next !== undefined) this.#arm(next.dueMs - nowMs)
    for (const { dueMs, expire } of pending) if (dueMs <= nowMs) expire()
  }
}
