/** When the next keep-alive is due: every third of the TTL with some jitter, or soon when the last one failed. */
import type { Clock, Timer } from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'
import type { Random } from '../base/ids.ts'

/** However short the TTL, renewing is never a hot loop (T32, hot renewals). */
const SHORTEST_MS = 20
const LONGEST_RETRY_MS = 1_000

export class RenewalSchedule {
  readonly #context: { readonly clock: Clock; readonly random: Random }
  readonly #session: { readonly ttlMs: number }
  readonly #onDue: (lateByMs: number) => void
  #timer: Timer | undefined

  constructor(
    context: { readonly clock: Clock; readonly random: Random },
    session: { readonly ttlMs: number },
    onDue: (lateByMs: number) => void,
  ) {
    this.#context = context
    this.#session = session
    this.#onDue = onDue
  }

  get intervalMs(): number {
    return Math.max(SHORTEST_MS, this.#session.ttlMs / defaults.renewalsPerTtl)
  }

  /** `tookMs`: how long ago the last one was sent. What it confirmed counts from then, so the interval does as well. */
  next(tookMs = 0): void {
    const jitter = (this.#context.random.fraction() * 2 - 1) * defaults.renewalJitter
    this.#set(Math.max(SHORTEST_MS, this.intervalMs * (1 + jitter) - tookMs))
  }

  /** After a failure, while there is still time. */
  soon(): void {
    const soonMs = Math.min(LONGEST_RETRY_MS, Math.max(SHORTEST_MS, this.#session.ttlMs / 10))
    this.#set(soonMs * (0.5 + this.#context.random.fraction() / 2))
  }

  cancel(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  #set(delayMs: number): void {
    const { clock } = this.#context
    const dueMs = clock.monotonicMs() + delayMs
    this.cancel()
    this.#timer = clock.setTimer(delayMs, () => this.#onDue(clock.monotonicMs() - dueMs))
  }
}
