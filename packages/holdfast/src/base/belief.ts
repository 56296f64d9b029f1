/**
 * The belief of a holder of a lease, or of a claim on a key or a job, by its own clock.
 *
 *   held ──────────── renewal failed ──────────▶ jeopardy   [jeopardize]
 *   jeopardy ──────── renewal confirmed ───────▶ held       [confirm]
 *   held | jeopardy ─ deadline, engine's word ─▶ lost       [markLost]      the signal aborts after it, exactly once
 *   held | jeopardy ─ given up by its holder ──▶ released   [markReleased]  does not abort the signal
 *
 * 1. lost and released are final (G4): no transition leaves them.
 * 2. The deadline is `since + granted TTL − drift`. `since` is when a confirmed request was sent, and elapsed time is the
 *    larger answer of both clocks (G3).
 * 3. The clock is asked at every read (`state`, `signal`, `remainingMs`), not only by a timer (T8, blocked event loops).
 */
import { type Clock, elapsedUntil, fresherOf, type Instant, instantOf } from './clock.ts'
import { LeaseLostError, type LossReason } from './errors.ts'
import { inNeutralContext } from './neutral-context.ts'
import type { LeaseState } from './types.ts'

export interface BeliefHost {
  readonly clock: Clock
  driftMs(ttlMs: number): number
}

/** A base class rather than a part, because every acquire makes one. */
export abstract class Belief<Host extends BeliefHost> {
  readonly host: Host
  #state: LeaseState = 'held'
  #since: Instant
  #ttlMs: number
  #controller: AbortController | undefined
  #loss: LeaseLostError | undefined
  #renewalFailure: unknown

  constructor(host: Host, since: Instant, ttlMs: number) {
    this.host = host
    this.#since = since
    this.#ttlMs = ttlMs
  }

  get state(): LeaseState {
    this.judge()
    return this.#state
  }

  get isLive(): boolean {
    return this.isLiveAt(this.#now)
  }

  isLiveAt(now: Instant): boolean {
    this.judge(now)
    return !this.isOver()
  }

  get remainingMs(): number {
    return this.remainingMsAt(this.#now)
  }

  remainingMsAt(now: Instant): number {
    this.judge(now)
    return this.isOver() ? 0 : this.timeLeftMs(now)
  }

  /** Time that the last confirmed prolongation leaves, whatever else limits the claim. */
  protected engineLeftMsAt(now: Instant): number {
    return this.#ttlMs - this.host.driftMs(this.#ttlMs) - elapsedUntil(now, this.#since)
  }

  get #now(): Instant {
    return instantOf(this.host.clock)
  }

  get ttlMs(): number {
    return this.#ttlMs
  }

  /** Aborts when the claim is lost, with LeaseLostError. */
  get signal(): AbortSignal {
    this.judge()
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#loss !== undefined) this.#controller.abort(this.#loss)
    }
    return this.#controller.signal
  }

  /** Ends the claim if its time is up. Called at every read, and by a timer. A caller with many claims reads the clock once. */
  judge(now = this.#now): void {
    if (!this.isOver() && this.timeLeftMs(now) <= 0) this.timeIsUp(now)
  }

  /** The lease's time is up, or that of its session. If renewals have failed before, that is why. */
  expire(): void {
    this.lose(this.#state === 'jeopardy' ? 'unreachable' : 'expired')
  }

  /** `since`: when the request was sent that prolonged it. False: the claim is over, and stays so. */
  confirm(since: Instant, ttlMs: number, now = this.#now): boolean {
    if (!this.isLiveAt(now)) return false
    this.#since = fresherOf(now, this.#since, since)
    this.#ttlMs = ttlMs
    this.#renewalFailure = undefined
    this.#state = 'held'
    return this.isLiveAt(now)
  }

  /** A renewal has failed, or is not answered yet. */
  jeopardize(failure?: unknown, now = this.#now): void {
    this.judge(now)
    this.#renewalFailure = failure
    if (this.#state !== 'held') return
    this.#state = 'jeopardy'
    this.onJeopardy(now)
  }

  /** Calls `markLost`, reports the loss, and calls `abortSignal`; does nothing if the claim is over. */
  abstract lose(reason: LossReason): void

  protected onJeopardy(_now: Instant): void {}

  protected timeIsUp(_now: Instant): void {
    this.expire()
  }

  protected timeLeftMs(now: Instant): number {
    return this.engineLeftMsAt(now)
  }

  /** Lost or released. Does not ask the clock. */
  protected isOver(): boolean {
    return this.#state === 'lost' || this.#state === 'released'
  }

  protected get loss(): LeaseLostError | undefined {
    return this.#loss
  }

  protected markLost(
    resource: string,
    reason: LossReason,
    options: {
      readonly leaseId?: string
      readonly detail?: string | undefined
      readonly advice?: string
    } = {},
  ): void {
    this.#state = 'lost'
    this.#loss = new LeaseLostError(resource, reason, {
      ...options,
      ttlMs: this.#ttlMs,
      // Otherwise the error would blame the engine for what may be the client's fault (T85, shared clients).
      ...(reason === 'unreachable' && { cause: this.#renewalFailure }),
    })
  }

  /** In a neutral context: the loss may be found by a read of another caller in the same session. */
  protected abortSignal(): void {
    const controller = this.#controller
    if (controller !== undefined) inNeutralContext(() => controller.abort(this.#loss))
  }

  protected markReleased(): void {
    this.#state = 'released'
  }
}
