/**
 * One timer for many requests that all have the same time to be answered: nearly all are answered in time.
 *
 * A process that was busy or paused finds the timer due before it has read the answers that arrived meanwhile. So a request
 * that seems to be late is judged after they have been read: otherwise all nodes would be silent because this process was.
 */
import { afterThisTurn, type Clock } from '../../base/clock.ts'

/** A request in flight. */
export interface Pending {
  /** By the monotonic clock. */
  readonly dueMs: number
  isOver: boolean
  expire(): void
}

export class Deadlines {
  readonly #clock: Clock
  #pending: Pending[] = []
  #isArmed = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Calls `expire` when the request is due, unless it is over before. Each is due later than the one before. */
  add(request: Pending, afterMs: number): void {
    this.#pending.push(request)
    if (!this.#isArmed) this.#arm(afterMs)
  }

  #arm(delayMs: number): void {
    this.#isArmed = true
    this.#clock.setTimer(delayMs, () => this.#look())
  }

  #look(): void {
    this.#isArmed = false
    const nowMs = this.#clock.monotonicMs()
    const pending = this.#pending.filter(({ isOver }) => !isOver)
    const late = pending.filter(({ dueMs }) => dueMs <= nowMs)
    this.#pending = pending.filter(({ dueMs }) => dueMs > nowMs)
    const [next] = this.#pending
    if (next !== undefined) this.#arm(next.dueMs - nowMs)
    if (late.length === 0) return
    afterThisTurn(() => {
      for (const request of late) if (!request.isOver) request.expire()
    })
  }
}
