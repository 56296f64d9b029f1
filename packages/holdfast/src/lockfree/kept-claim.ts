/**
 * A claim that ends by itself, as whoever works under it sees it: until when it may be believed, and that it is renewed
 * meanwhile.
 *
 *   held ──renewal confirmed──▶ held                                          [#renew]
 *   held ──deadline, seen by the timer or by a read──▶ lost                   [#judge]
 *   held ──the store says that it is another's──▶ lost                        [#renew]
 *   held ──stop──▶ (over)
 *
 * The claim counts from the sending of the last request that was confirmed, by the larger of both clocks. Nothing revives
 * a claim that is lost, and a lost claim is not renewed. What its holder may still do at the store is the store's to say.
 */
import { type Clock, elapsedMs, type Instant, instantOf, type Timer } from '../base/clock.ts'
import { defaultDriftMs, defaults } from '../base/defaults.ts'
import { LeaseLostError, type LossReason } from '../base/errors.ts'

export interface ClaimTerms {
  readonly clock: Clock
  readonly resource: string
  /** When the claim was asked for. */
  readonly since: Instant
  readonly ttlMs: number
  /** Prolongs it by `ttlMs` from now; false: it is not ours any more. Without it the claim is not renewed. */
  readonly renew?: () => Promise<boolean>
  /** What to do when it is lost, for the message. */
  readonly advice?: string
}

export class KeptClaim {
  readonly #terms: ClaimTerms
  readonly #controller = new AbortController()
  #since: Instant
  #ttlMs: number
  #timer: Timer | undefined
  #stopped = false
  #unanswered = false

  constructor(terms: ClaimTerms) {
    this.#terms = terms
    this.#since = terms.since
    this.#ttlMs = terms.ttlMs
    this.#arm()
  }

  /** Aborts when the claim is lost, with LeaseLostError. */
  get signal(): AbortSignal {
    this.#judge()
    return this.#controller.signal
  }

  get remainingMs(): number {
    if (this.#stopped || this.#controller.signal.aborted) return 0
    const leftMs = this.#ttlMs - defaultDriftMs(this.#ttlMs) - elapsedMs(this.#terms.clock, this.#since)
    return Math.max(0, leftMs)
  }

  /** Counts from `since`, when a request that prolonged it was sent. False: it was lost before, and stays so. */
  confirm(since: Instant, ttlMs: number): boolean {
    this.#judge()
    if (this.#stopped || this.#controller.signal.aborted) return false
    this.#since = since
    this.#ttlMs = ttlMs
    this.#arm()
    return true
  }

  lose(reason: LossReason, options?: ErrorOptions): void {
    if (this.#stopped || this.#controller.signal.aborted) return
    this.#timer?.cancel()
    const { resource, advice } = this.#terms
    this.#controller.abort(
      new LeaseLostError(resource, reason, { ...options, ...(advice !== undefined && { advice }) }),
    )
  }

  /** From now on nothing is renewed, and nothing is lost. */
  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
  }

  #judge(): void {
    if (this.#stopped || this.#controller.signal.aborted || this.remainingMs > 0) return
    this.lose(this.#unanswered ? 'unreachable' : 'expired')
  }

  #arm(delayMs?: number): void {
    this.#timer?.cancel()
    const { clock, renew } = this.#terms
    // Also of a claim whose answer took most of its time there is something left when it is renewed.
    const usual =
      renew === undefined
        ? this.remainingMs
        : Math.min(this.#ttlMs / defaults.renewalsPerTtl, this.remainingMs / 2)
    this.#timer = clock.setTimer(Math.min(delayMs ?? usual, this.remainingMs), () => {
      this.#judge()
      if (renew !== undefined && !this.#controller.signal.aborted) void this.#renew(renew)
    })
  }

  async #renew(renew: () => Promise<boolean>): Promise<void> {
    const since = instantOf(this.#terms.clock)
    // The deadline must come even if the answer does not.
    this.#unanswered = true
    this.#timer = this.#terms.clock.setTimer(this.remainingMs, () => this.#judge())
    try {
      const isOurs = await renew()
      if (this.#stopped) return
      this.#unanswered = false
      if (isOurs) this.confirm(since, this.#terms.ttlMs)
      else this.lose('taken-over')
    } catch {
      // Not confirmed is not refused: it is tried again until the deadline, which ends the claim all the same.
      if (!this.#stopped && !this.#controller.signal.aborted) this.#arm(this.#terms.ttlMs / 10)
    }
  }
}
