/**
 * Many calls that all have the same time, and one timer for them: nearly all are answered in time, and a timer for each
 * would cost more than the rest of the call. The timer is set for the first of them, and looks for the next one then.
 *
 * A process that was busy or paused past the time finds the timer due before it has read what arrived meanwhile. So
 * whoever seems to be late is judged when that has been read: otherwise all nodes would be silent because we were.
 */
import { afterThisTurn, type Clock } from '../../base/clock.ts'

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
    const late = pending.filter(({ dueMs }) => dueMs <= nowMs)
    if (late.length === 0) return
    afterThisTurn(() => {
      for (const entry of late) if (!entry.isOver) entry.expire()
    })
  }
}
