/**
 * A lease, as its holder sees it. Its states and its deadline are those of `base/belief.ts`; `since` only ever comes from a
 * backend (G3). The end of a lease is reported to its session, so that the engine's side is released too (nothing is
 * immortal).
 */

import { Belief } from '../base/belief.ts'
import { callSafely } from '../base/call-safely.ts'
import { type Clock, elapsedUntil, type Instant, instantOf } from '../base/clock.ts'
import { LeaseLostError, type LossReason } from '../base/errors.ts'
import { type AboutLease, emit, hasListeners } from '../base/events.ts'
import { publicIdOf } from '../base/ids.ts'
import { inNeutralContext } from '../base/neutral-context.ts'
import type { ReleaseOutcome } from '../base/types.ts'
import type { Fencing, Grant, GrantedClaim } from '../spi.ts'
import { type Attempt, aboutRequest, type Wanted } from './attempt.ts'

/**
 * The fate of a lost lease at the engine: it is `gone` there already, is to be `abandoned`, or is `kept` until
 * its session closes, because its holder has been told to stop and has not stopped yet.
 */
export type AtEngine = 'gone' | 'abandoned' | 'kept'

/** The session's side of a lease: the members that a lease needs of it. */
export interface LeaseHost {
  readonly clock: Clock
  readonly about: { readonly backend: string; readonly namespace: string; readonly holder: string }
  readonly epoch: number
  driftMs(ttlMs: number): number
  leaseLost(lease: LeaseRecord, atEngine: AtEngine): void
  releaseAtEngine(lease: LeaseRecord, keepForMs: number): Promise<ReleaseOutcome>
}

export class LeaseRecord extends Belief<LeaseHost> {
  readonly claim: GrantedClaim
  /** As it was asked for. */
  readonly terms: Wanted
  readonly token: bigint | null
  readonly previousData: string | undefined
  readonly acquiredAt: Instant
  /** The numbers of the last keep-alives that listed and that confirmed this lease; see `KeepAlives.renew`. */
  listedInFlight = 0
  confirmedInFlight = 0
  /** The handle that the caller has, until it is watched for being dropped (`dropped.ts`). */
  handle: object | undefined
  #isHandedOut = false
  #tellLoss: (() => void) | undefined
  #warnedOfLongHold = false
  #releasing: Promise<ReleaseOutcome> | undefined
  #releaseIsUnknown = false

  constructor(
    host: LeaseHost,
    grant: Grant<Fencing>,
    token: bigint | null,
    terms: Wanted,
    now: Instant = instantOf(host.clock),
  ) {
    super(host, grant.since, grant.ttlMs)
    this.claim = grant
    this.terms = terms
    this.token = token
    this.previousData = grant.previousData
    this.acquiredAt = now
  }

  get id(): string {
    return publicIdOf(this.claim.attempt)
  }

  get heldForMs(): number {
    return this.#heldForMsAt(instantOf(this.host.clock))
  }

  #heldForMsAt(now: Instant): number {
    return elapsedUntil(now, this.acquiredAt)
  }

  get maxHoldLeftMs(): number {
    return this.terms.maxHoldMs - this.heldForMs
  }

  /** The error to throw if the lease is no longer held, else undefined. */
  get ended(): LeaseLostError | undefined {
    if (this.state === 'released')
      return new LeaseLostError(this.claim.name, 'released', { leaseId: this.id })
    return this.loss
  }

  protected override onJeopardy(now: Instant): void {
    const remainingMs = this.timeLeftMs(now)
    if (hasListeners('jeopardy')) emit('jeopardy', { ...this.about, remainingMs })
    const { onJeopardy } = this.terms
    // The callback is the caller's: its failure must not end the renewal loop (T30, renewals that stop silently).
    if (onJeopardy !== undefined) inNeutralContext(() => callSafely(() => onJeopardy(remainingMs)))
  }

  protected override timeIsUp(now: Instant): void {
    if (this.#heldForMsAt(now) >= this.terms.maxHoldMs) this.lose('max-hold')
    else this.expire()
  }

  override lose(reason: LossReason, atEngine: AtEngine = 'abandoned', detail?: string): void {
    if (this.isOver()) return
    const heldForMs = this.heldForMs
    this.markLost(this.claim.name, reason, { leaseId: this.id, detail })
    this.host.leaseLost(this, atEngine)
    const tell = () => {
      if (hasListeners('lost'))
        emit('lost', { ...this.about, reason, heldForMs, ...(detail !== undefined && { detail }) })
    }
    if (this.#isHandedOut) tell()
    else this.#tellLoss = tell
    this.abortSignal()
  }

  /** Tells that it was acquired, and only then that it was lost, if the two came in one moment. */
  tellAcquired(attempt: Pick<Attempt, 'about' | 'waitedMs'>): void {
    if (hasListeners('acquired'))
      emit('acquired', { ...this.about, ...attempt.about, waitedMs: attempt.waitedMs })
    this.#isHandedOut = true
    this.#tellLoss?.()
  }

  /** Belief ends here and now, whatever becomes of the call. Repeatable until the engine has answered (T13, repeated releases). */
  release(holdAtLeastMs = this.terms.holdAtLeastMs): Promise<ReleaseOutcome> {
    const { state } = this
    if (this.#releasing !== undefined) return this.#releasing
    if (state === 'lost') return Promise.resolve('not-held')
    const heldForMs = hasListeners('released') ? this.heldForMs : 0
    this.markReleased()
    const keepForMs = this.#leftOf(holdAtLeastMs)
    this.#releasing = this.host.releaseAtEngine(this, keepForMs).then((answer) => {
      // After a release with an unknown outcome, "not held" does not say whether that one had ended the hold.
      const outcome = answer === 'not-held' && this.#releaseIsUnknown ? 'unknown' : answer
      this.#releaseIsUnknown ||= answer === 'unknown'
      this.#releasing = answer === 'unknown' ? undefined : Promise.resolve('not-held')
      if (hasListeners('released')) emit('released', { ...this.about, heldForMs, outcome })
      return outcome
    })
    return this.#releasing
  }

  /** How long the name stays closed after a loss. */
  get keepClosedMs(): number {
    return Math.max(this.terms.request.lockDelayMs, this.holdAtLeastLeftMs)
  }

  get holdAtLeastLeftMs(): number {
    return this.#leftOf(this.terms.holdAtLeastMs)
  }

  /** By the monotonic clock alone: a stepped wall clock must not shorten what was promised to others. */
  #leftOf(holdAtLeastMs: number): number {
    if (holdAtLeastMs === 0) return 0
    return Math.max(0, holdAtLeastMs - (this.host.clock.monotonicMs() - this.acquiredAt.monotonicMs))
  }

  warnIfHeldLong(now: Instant): void {
    if (this.#warnedOfLongHold || !hasListeners('held-long')) return
    const heldForMs = this.#heldForMsAt(now)
    if (heldForMs < this.terms.warnHoldMs) return
    this.#warnedOfLongHold = true
    emit('held-long', { ...this.about, heldForMs })
  }

  get about(): AboutLease {
    const { host, id, token, terms } = this
    return { ...host.about, ...aboutRequest(terms), id, token }
  }

  protected override timeLeftMs(now: Instant): number {
    const engineLeftMs = this.engineLeftMsAt(now)
    if (this.terms.maxHoldMs === Number.POSITIVE_INFINITY) return engineLeftMs
    return Math.min(engineLeftMs, this.terms.maxHoldMs - this.#heldForMsAt(now))
  }
}
