/** Guards forget by themselves now and then, as part of a run: no timer, and nothing to start or stop. */
import type { GuardSettings } from './settings.ts'

const LONGEST_INTERVAL_MS = 3_600_000

export class Forgetting {
  readonly #settings: GuardSettings
  #lastMs = Number.NEGATIVE_INFINITY

  constructor(settings: GuardSettings) {
    this.#settings = settings
  }

  /** Whether it is time to forget again; asked at every run, true at the first and then at most once an hour. */
  isDue(): boolean {
    const { forgetAfterMs, clock } = this.#settings
    if (forgetAfterMs === Number.POSITIVE_INFINITY) return false
    const nowMs = clock.monotonicMs()
    if (nowMs - this.#lastMs < Math.min(forgetAfterMs, LONGEST_INTERVAL_MS)) return false
    this.#lastMs = nowMs
    return true
  }
}
