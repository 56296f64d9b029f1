/**
 * The clocks of one machine among several. It may run a little fast or slow; its wall clock can be set; and it can
 * sleep, which stops its monotonic clock and not the time of everybody else.
 */
import type { Clock, Timer } from '../../../src/base/clock.ts'
import type { FakeClock } from '../../../src/testing/fake-clock.ts'

export class MachineClock implements Clock {
  readonly #world: FakeClock
  readonly #startMs: number
  readonly #rate: number
  readonly #late = new Set<() => void>()
  #state: 'running' | 'stalled' | 'asleep' = 'running'
  /** How long it has slept, by the world's time. */
  #sleptMs = 0
  #asleepSinceMs = 0
  #wallStepsMs = 0

  constructor(world: FakeClock, rate: number) {
    this.#world = world
    this.#startMs = world.monotonicMs()
    this.#rate = rate
  }

  monotonicMs(): number {
    const nowMs = this.#state === 'asleep' ? this.#asleepSinceMs : this.#world.monotonicMs()
    return this.#startMs + (nowMs - this.#startMs - this.#sleptMs) * this.#rate
  }

  wallMs(): number {
    return 1_700_000_000_000 + (this.#world.monotonicMs() - this.#startMs) * this.#rate + this.#wallStepsMs
  }

  setTimer(delayMs: number, fire: () => void): Timer {
    const dueMs = this.monotonicMs() + Math.max(0, delayMs)
    let armed: Timer
    const onDue = () => {
      if (this.#state !== 'running') this.#late.add(onDue)
      else if (dueMs - this.monotonicMs() > 1e-6) arm()
      else fire()
    }
    const arm = () => {
      armed = this.#world.setTimer(Math.max(0, dueMs - this.monotonicMs()) / this.#rate, onDue)
    }
    arm()
    return {
      cancel: () => {
        armed.cancel()
        this.#late.delete(onDue)
      },
    }
  }

  stepWall(ms: number): void {
    this.#wallStepsMs += ms
  }

  /** The event loop is blocked: time goes on, timers do not fire. */
  stall(): void {
    if (this.#state === 'running') this.#state = 'stalled'
  }

  sleep(): void {
    if (this.#state !== 'running') return
    this.#asleepSinceMs = this.#world.monotonicMs()
    this.#state = 'asleep'
  }

  /** Timers that fell due meanwhile fire now, late. */
  goOn(): void {
    if (this.#state === 'asleep') this.#sleptMs += this.#world.monotonicMs() - this.#asleepSinceMs
    this.#state = 'running'
    const late = [...this.#late]
    this.#late.clear()
    for (const onDue of late) onDue()
  }
}
