/** The pause between two looks. Wakes come in bursts, and one look serves all of a burst. */
import type { Clock, Timer } from '../../base/clock.ts'

export class WakeablePause {
  readonly #clock: Clock
  #isWoken = false
  #mayEnd = false
  #timer: Timer | undefined
  #resolve: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Resolves after `mostMs`, or when it is woken, but not before `leastMs`. A wake since the last pause counts. */
  take(leastMs: number, mostMs: number): Promise<void> {
    return new Promise((resolve) => {
      this.#resolve = resolve
      this.#mayEnd = false
      this.#set(leastMs, () => {
        this.#mayEnd = true
        if (this.#isWoken) this.end()
        else this.#set(mostMs - leastMs, () => this.end())
      })
    })
  }

  wake(): void {
    this.#isWoken = true
    if (this.#mayEnd) this.end()
  }

  /** Ends it at once. */
  end(): void {
    this.#timer?.cancel()
    this.#isWoken = false
    this.#mayEnd = false
    this.#resolve?.()
  }

  /** A member is there to work: while it is, its process lives. */
  #set(ms: number, fire: () => void): void {
    this.#timer = this.#clock.setTimer(ms, fire, { keepsProcessAlive: true })
  }
}
