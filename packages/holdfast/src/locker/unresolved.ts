/**
 * Claims that the engine may or may not have: an acquire or a release whose answer was lost. Each is
 * abandoned again and again until the engine has answered; only then is it certain that it can never land. After one
 * TTL without an answer the whole session is given up, because a claim that is neither known nor resolved would be
 * held for as long as the session lives.
 *
 *   unknown ──abandon answered──▶ resolved
 *   unknown ──one TTL without an answer──▶ hopeless: the session ends, and the claim with it
 */

import type { Cancellation } from '../base/cancellation.ts'
import { pause } from '../base/clock.ts'
import { growingPauseMs } from '../base/pauses.ts'
import type { Call, Claim, GrantedClaim } from '../spi.ts'
import { callEngine } from './call.ts'
import type { LockerContext } from './context.ts'

export interface UnresolvedTerms {
  abandon(claim: Claim, call: Call): Promise<void>
  release(claim: GrantedClaim, keepForMs: number, call: Call): Promise<unknown>
  callLimitMs(): number
  ttlMs(): number
  /** The end of the session, which resolves everything. */
  readonly stop: Cancellation
  onResolved(): void
  onHopeless(): void
}

const FIRST_PAUSE_MS = 20

export class Unresolved {
  readonly #context: LockerContext
  readonly #terms: UnresolvedTerms
  /** Attempts, and until when the name of each is to stay closed, on the monotonic clock. */
  readonly #attempts = new Map<string, number>()
  #abandoned = 0

  constructor(context: LockerContext, terms: UnresolvedTerms) {
    this.#context = context
    this.#terms = terms
  }

  get size(): number {
    return this.#attempts.size
  }

  /** How many there have been. */
  get abandoned(): number {
    return this.#abandoned
  }

  /** Whether a name is to stay closed for longer than the session. */
  get keepsClosed(): boolean {
    const nowMs = this.#context.clock.monotonicMs()
    return [...this.#attempts.values()].some((untilMs) => untilMs > nowMs)
  }

  has(attempt: string): boolean {
    return this.#attempts.has(attempt)
  }

  /** `keepForMs`: the name stays closed for that long from now on, if the engine still has the grant. */
  add(claim: Claim | GrantedClaim, keepForMs = 0): void {
    if (this.#attempts.has(claim.attempt)) return
    this.#abandoned++
    this.#attempts.set(claim.attempt, this.#context.clock.monotonicMs() + keepForMs)
    this.#context.background.run(() => this.#abandonUntilAnswered(claim, keepForMs))
  }

  async #abandonUntilAnswered(claim: Claim | GrantedClaim, keepForMs: number): Promise<void> {
    const { stop } = this.#terms
    const { clock } = this.#context
    const startedMs = clock.monotonicMs()
    for (let failures = 0; !stop.cancelled; failures++) {
      try {
        const limits = { what: `abandon of "${claim.name}"`, timeoutMs: this.#terms.callLimitMs(), stop }
        const keepLeftMs = keepForMs - (clock.monotonicMs() - startedMs)
        if (keepLeftMs > 0 && 'grantId' in claim)
          await callEngine(this.#context, limits, (call) => this.#terms.release(claim, keepLeftMs, call))
        await callEngine(this.#context, limits, (call) => this.#terms.abandon(claim, call))
        this.#attempts.delete(claim.attempt)
        this.#terms.onResolved()
        return
      } catch {
        const ttlMs = this.#terms.ttlMs()
        if (clock.monotonicMs() - startedMs >= ttlMs) this.#terms.onHopeless()
        else await this.#pause(growingPauseMs(failures, { firstMs: FIRST_PAUSE_MS, longestMs: ttlMs / 3 }))
      }
    }
  }

  async #pause(ms: number): Promise<void> {
    const jitteredMs = ms * (0.5 + this.#context.random.fraction() / 2)
    await pause(this.#context.clock, jitteredMs, { signal: this.#terms.stop.signal })
  }
}
