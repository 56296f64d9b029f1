/**
 * A claim on a key or a job, as its holder sees it: the belief of `base/belief.ts`, and a timer that renews the claim and
 * ends it at its deadline. A lost claim is not renewed. The store decides what its holder may still do there.
 */
import { Belief, type BeliefHost } from '../base/belief.ts'
import { type Clock, type Instant, instantOf, type Timer } from '../base/clock.ts'
import { defaultDriftMs, defaults } from '../base/defaults.ts'
import type { LossReason } from '../base/errors.ts'
import { type Fence, makeFence } from '../base/fence.ts'
import { publicIdOf } from '../base/ids.ts'

export interface ClaimTerms {
  readonly clock: Clock
  /** Tells guards and errors what is claimed. */
  readonly resource: string
  /** When the claim was asked for. */
  readonly since: Instant
  readonly ttlMs: number
  /** Prolongs it by `ttlMs` from now; false: another has it. Without `renew` the claim is not renewed. */
  readonly renew?: () => Promise<boolean>
  /** Advice for the case that it is lost, for the message. */
  readonly advice?: string
}

/** The proof for guards of a claim. */
export function claimFence(claim: {
  readonly issuer: string
  readonly resource: string
  readonly token: bigint
  readonly attempt: string
}): Fence {
  const { issuer, resource: name, token, attempt } = claim
  return makeFence({ issuer, name, mode: 'exclusive', token, grant: publicIdOf(attempt) })
}

export class KeptClaim extends Belief<BeliefHost> {
  readonly #terms: ClaimTerms
  #timer: Timer | undefined

  constructor(terms: ClaimTerms) {
    super({ clock: terms.clock, driftMs: defaultDriftMs }, terms.since, terms.ttlMs)
    this.#terms = terms
    this.#arm()
  }

  override confirm(since: Instant, ttlMs: number): boolean {
    const isLive = super.confirm(since, ttlMs)
    if (isLive) this.#arm()
    return isLive
  }

  override lose(reason: LossReason): void {
    if (this.isOver()) return
    this.#timer?.cancel()
    const { resource, advice } = this.#terms
    this.markLost(resource, reason, advice === undefined ? {} : { advice })
    this.abortSignal()
  }

  /** From now on nothing is renewed, and nothing is lost. */
  stop(): void {
    this.#timer?.cancel()
    if (!this.isOver()) this.markReleased()
  }

  #arm(delayMs?: number): void {
    this.#timer?.cancel()
    const { renew } = this.#terms
    const { remainingMs } = this
    // If the answer took most of the TTL, half of what is left.
    const usualMs =
      renew === undefined ? remainingMs : Math.min(this.ttlMs / defaults.renewalsPerTtl, remainingMs / 2)
    this.#timer = this.host.clock.setTimer(Math.min(delayMs ?? usualMs, remainingMs), () => {
      if (this.isLive && renew !== undefined) void this.#renew(renew)
    })
  }

  async #renew(renew: () => Promise<boolean>): Promise<void> {
    const { clock } = this.host
    const since = instantOf(clock)
    // The deadline must come even if the answer does not.
    this.jeopardize()
    this.#timer = clock.setTimer(this.remainingMs, () => this.judge())
    try {
      const isOurs = await renew()
      if (isOurs) this.confirm(since, this.#terms.ttlMs)
      else this.lose('taken-over')
    } catch (error) {
      // An unconfirmed renewal is not a refused one: it is tried again until the deadline.
      this.jeopardize(error)
      if (this.isLive) this.#arm(this.#terms.ttlMs / 10)
    }
  }
}
