/**
 * One session of the engine, and everything that rides on it: leases, and waiters in the queue. Keep-alives prolong all of it
 * together (`keep-alive.ts`); here is what they prolong, until when it may be believed, and how it ends.
 *
 *   open ──unresolved claim──▶ open, but takes no new leases                [isSound]
 *   open ──worn out | full──▶ open, takes new leases only if no other can   [takesNewLeases]
 *   open ──its own deadline | engine says gone | unresolved for one TTL──▶ gone   [end]
 *   open ──close──▶ gone
 *
 * An acquire or release with an unknown outcome is *unresolved* until `abandon` has been answered; while something is
 * unresolved the session takes no new leases, and after one TTL of it the session is given up, so that nothing becomes
 * immortal through a live session (T15, late acquires; T29, late renewals).
 */

import { Cancellation } from '../base/cancellation.ts'
import { type Clock, elapsedUntil, fresherOf, type Instant, instantOf, type Timer } from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'
import { BackendUnavailableError, type LossReason } from '../base/errors.ts'
import { emit, hasListeners } from '../base/events.ts'
import { withEpoch } from '../base/fence.ts'
import { ignore } from '../base/ignore.ts'
import type { CallOptions, ReleaseOutcome } from '../base/types.ts'
import { withLimit } from '../base/within.ts'
import type { BackendSession, Call, Claim, Fencing, Grant, GrantedClaim } from '../spi.ts'
import type { Attempt } from './attempt.ts'
import { callEngine, callForCaller } from './call.ts'
import type { LockerContext } from './context.ts'
import { watchForDrop } from './dropped.ts'
import { KeepAlives } from './keep-alive.ts'
import { type AtEngine, type LeaseHost, LeaseRecord } from './lease.ts'
import { type Leftover, SessionAttempts } from './session-attempts.ts'
import { abandonUntilAnswered } from './unresolved.ts'

export class KeptSession<F extends Fencing = Fencing> implements LeaseHost {
  readonly engineSession: BackendSession<F>
  readonly clock: Clock
  readonly about: LeaseHost['about']
  readonly epoch: number
  /** That of every lease on it, where the engine ties it to the session. */
  readonly lockDelayMs: number
  readonly #context: LockerContext
  readonly #onEnd: (session: KeptSession<F>) => void
  readonly attempts = new SessionAttempts<F>()
  /** Its end. The reason is the error for calls that are in flight then. */
  readonly ended = new Cancellation()
  /** How many attempts are unresolved now, and how many have been. */
  #unresolved = 0
  #abandoned = 0
  readonly #keepAlives: KeepAlives<F>
  #since: Instant
  #ttlMs: number
  #deadlineTimer: Timer | undefined
  #deadlineTimerDueMs = Number.POSITIVE_INFINITY
  #idleSinceMs: number
  #onIdle: (() => void) | undefined

  constructor(
    context: LockerContext,
    engineSession: BackendSession<F>,
    lockDelayMs: number,
    onEnd: (session: KeptSession<F>) => void,
  ) {
    this.#context = context
    this.engineSession = engineSession
    this.lockDelayMs = lockDelayMs
    this.clock = context.clock
    this.about = { backend: context.info.name, namespace: context.info.namespace, holder: context.holder }
    this.epoch = context.info.epoch
    this.#onEnd = onEnd
    this.#since = engineSession.since
    this.#ttlMs = engineSession.ttlMs
    this.#idleSinceMs = this.clock.monotonicMs()
    this.#keepAlives = new KeepAlives(context, this)
    this.#armDeadlineTimer(this.#timeLeftMs(instantOf(this.clock)))
  }

  get isOpen(): boolean {
    return this.isOpenAt(instantOf(this.clock))
  }

  isOpenAt(now: Instant): boolean {
    if (!this.ended.cancelled && this.#timeLeftMs(now) <= 0) this.end('expired')
    return !this.ended.cancelled
  }

  /** Open, and nothing is unresolved: a lease that is put on it will not be lost for the sake of another. */
  get isSound(): boolean {
    return this.isOpen && this.#unresolved === 0
  }

  /**
   * Every abandoned attempt leaves a mark at the engine for as long as the session lives: a session with many marks is worn out. Only the
   * engine knows whether a session is full.
   */
  get takesNewLeases(): boolean {
    const isUsedUp = this.#abandoned >= this.#context.maxAbandonedPerSession || this.engineSession.isFull
    return this.#unresolved === 0 && !isUsedUp && this.isOpenAt(instantOf(this.clock))
  }

  get isIdle(): boolean {
    return this.attempts.size === 0
  }

  /** As it was granted last. */
  get ttlMs(): number {
    return this.#ttlMs
  }

  /** How long a call may take that is repeated until it is answered. */
  get callLimitMs(): number {
    return this.#keepAlives.callLimitMs
  }

  driftMs(ttlMs: number): number {
    return this.#context.info.driftMs(ttlMs)
  }

  /** The lease that the engine has granted to an attempt. Null if its time is up already (T6, late grants): then it is given back. */
  adopt(attempt: Attempt<F>, grant: Grant<F>): LeaseRecord | null | Promise<LeaseRecord | null> {
    const now = instantOf(this.clock)
    if (!this.isOpenAt(now)) return null
    const { ttlMs } = grant
    const leftMs = ttlMs - this.driftMs(ttlMs) - elapsedUntil(now, grant.since)
    if (leftMs <= 0) {
      this.resolve(grant)
      return null
    }
    const token = grant.token === null ? null : withEpoch(this.epoch, grant.token)
    const lease = new LeaseRecord(this, grant, token, attempt.wanted, now)
    attempt.lease = lease
    attempt.state = 'held'
    this.attempts.noteHeld(lease)
    const firstDueMs = Math.min(leftMs, lease.terms.maxHoldMs)
    if (now.monotonicMs + firstDueMs < this.#deadlineTimerDueMs) this.#armDeadlineTimer(firstDueMs)
    // After a failure the session's last keep-alive may be so old that the lease would be lost before its first renewal.
    return leftMs < ttlMs / defaults.renewalsPerTtl ? this.#confirmed(lease, attempt) : lease
  }

  /** If the keep-alive fails, the lease is worth what it was worth before. Null: it is over by now. */
  async #confirmed(lease: LeaseRecord, { signal }: Attempt<F>): Promise<LeaseRecord | null> {
    await this.renew(lease, { signal }).catch(ignore)
    return lease.isLive ? lease : null
  }

  /** The engine has nothing of this attempt, and never will. */
  forget({ claim }: Attempt<F>): void {
    this.attempts.delete(claim.attempt)
    this.#noteIdle()
  }

  leaseLost(lease: LeaseRecord, atEngine: AtEngine): void {
    const { claim } = lease
    this.attempts.noteEnded(lease, atEngine === 'kept' ? 'lingering' : 'over')
    if (atEngine === 'kept') return
    this.attempts.delete(claim.attempt)
    if (atEngine === 'abandoned') this.resolve(claim, lease.keepClosedMs)
    this.#noteIdle()
  }

  async releaseAtEngine(lease: LeaseRecord, keepForMs: number): Promise<ReleaseOutcome> {
    const { claim } = lease
    if (this.ended.cancelled) return 'not-held'
    this.attempts.noteEnded(lease, 'releasing')
    const release = (call: Call) => this.engineSession.release(claim, { keepForMs }, call)
    try {
      const outcome = await callForCaller(this.#context, `release of "${claim.name}"`, this.ended, release)
      this.attempts.delete(claim.attempt)
      return outcome
    } catch (error) {
      // A session that has ended takes its claims with it; else the claim stays unresolved until abandoned.
      this.resolve(claim, keepForMs)
      if (hasListeners('release-failed')) emit('release-failed', { ...lease.about, error })
      return 'unknown'
    } finally {
      this.#noteIdle()
    }
  }

  /** The engine may or may not have this claim: sees to it, in the background, that it has not and never will. */
  resolve(claim: Claim | GrantedClaim, keepForMs = 0): void {
    if (this.ended.cancelled || this.attempts.get(claim.attempt)?.state === 'unresolved') return
    const closedUntilMs = this.clock.monotonicMs() + keepForMs
    const leftover: Leftover = { state: 'unresolved', claim, closedUntilMs }
    this.attempts.set(claim.attempt, leftover)
    this.#unresolved++
    this.#abandoned++
    this.#context.background.run(() => this.#abandon(leftover))
  }

  async #abandon(leftover: Leftover): Promise<void> {
    await abandonUntilAnswered(this.#context, this, leftover)
    this.#unresolved--
    this.attempts.delete(leftover.claim.attempt)
    this.#noteIdle()
  }

  /** Resolves when a keep-alive that listed this lease has been confirmed. */
  renew(lease: LeaseRecord, options?: CallOptions): Promise<void> {
    return this.#keepAlives.renew(lease, options)
  }

  prolonged(since: Instant, ttlMs: number, now: Instant): void {
    this.#since = fresherOf(now, this.#since, since)
    this.#ttlMs = ttlMs
  }

  #timeLeftMs(now: Instant): number {
    return this.#ttlMs - this.driftMs(this.#ttlMs) - elapsedUntil(now, this.#since)
  }

  /** One timer for all deadlines of the session, set to the earliest. */
  #armDeadlineTimer(delayMs: number): void {
    this.#deadlineTimer?.cancel()
    this.#deadlineTimerDueMs = this.clock.monotonicMs() + delayMs
    this.#deadlineTimer = this.clock.setTimer(delayMs, () => this.judgeAll(instantOf(this.clock)))
  }

  /** Ends what is over by `now`, which is read once for all leases of the session. */
  judgeAll(now: Instant): void {
    if (!this.isOpenAt(now)) return
    let earliestMs = this.#timeLeftMs(now)
    for (const lease of this.attempts.leases()) {
      watchForDrop(lease)
      const leftMs = lease.remainingMsAt(now)
      if (leftMs > 0) earliestMs = Math.min(earliestMs, leftMs)
    }
    if (!this.ended.cancelled) this.#armDeadlineTimer(earliestMs)
  }

  /** Before a keep-alive without a caller: true if the session ends instead, because nothing has been on it for long. */
  closeIfIdle(): boolean {
    const isOver = this.isIdle && this.clock.monotonicMs() - this.#idleSinceMs >= defaults.idleSessionMs
    if (isOver) this.#context.background.run(() => this.close())
    return isOver
  }

  /** Resolves when nothing rides on it, or it has ended. */
  whenIdle(): Promise<void> {
    return new Promise((resolve) => {
      this.#onIdle = resolve
      if (this.isIdle || this.ended.cancelled) resolve()
    })
  }

  #noteIdle(): void {
    if (this.attempts.size > 0) return
    this.#onIdle?.()
    this.#idleSinceMs = this.clock.monotonicMs()
    const isWornOut = this.#abandoned >= this.#context.maxAbandonedPerSession
    if (isWornOut && !this.ended.cancelled) this.#context.background.run(() => this.close())
  }

  /** Everything that rides on it is lost. What the engine still has of it ends when the engine's own time is up. */
  end(reason: LossReason): void {
    if (this.ended.cancelled) return
    // A close would free the names at once: also those that must stay closed, or whose holder has not stopped yet (T53, early releases).
    const nowMs = this.clock.monotonicMs()
    const mustWait = [...this.attempts.values()].some((each) => staysClosed(each, nowMs))
    this.#finish(reason)
    if (reason !== 'session-gone' && !mustWait) this.#context.background.run(() => this.#closeAtEngine(0))
  }

  async close(): Promise<void> {
    if (this.ended.cancelled) return
    const claims = this.attempts.size
    const lingering = [...this.#lingering()]
    this.#finish('closed')
    const endedAtMs = this.clock.monotonicMs()
    const expireWithin = () => this.#mostMsAtEngine - (this.clock.monotonicMs() - endedAtMs)
    await this.#keepClosed(lingering, expireWithin)
    const { left, error } = await this.#closeAtEngine(claims, {
      withinMs: expireWithin(),
      keepsProcessAlive: true,
    })
    const expireWithinMs = expireWithin()
    if (left === 0 || expireWithinMs <= 0 || !hasListeners('close-failed')) return
    const { backend, namespace } = this.about
    emit('close-failed', { backend, namespace, left, expireWithinMs, error })
  }

  /** Leases that are over, and whose claims are kept at the engine: their bodies have not stopped yet (T53, early releases). */
  *#lingering(): Generator<LeaseRecord> {
    for (const each of this.attempts.values())
      if (each.state === 'lingering' && each.lease !== undefined) yield each.lease
  }

  #finish(reason: LossReason): void {
    this.ended.cancel(
      new BackendUnavailableError(this.about.backend, `the session has ended (${reason})`, 'unknown'),
    )
    this.#keepAlives.end()
    this.#deadlineTimer?.cancel()
    this.#onEnd(this)
    for (const lease of [...this.attempts.leases()]) {
      lease.judge()
      if (reason === 'expired') lease.expire()
      else lease.lose(reason)
    }
    const others = [...this.attempts.values()]
    this.attempts.clear()
    for (const each of others) if (each.state !== 'unresolved') each.lose()
    this.#onIdle?.()
  }

  /** Releases in batches, so that no lease's call times out while thousands of others are sent first. */
  async #keepClosed(lingering: readonly LeaseRecord[], expireWithin: () => number): Promise<void> {
    const kept = lingering.filter((lease) => lease.holdAtLeastLeftMs > 0)
    let failure: unknown
    while (kept.length > 0 && failure === undefined) {
      const batch = kept.splice(0, RELEASED_AT_ONCE)
      const outcomes = await Promise.all(batch.map((lease) => this.#keepOne(lease, expireWithin())))
      failure = outcomes.find((error) => error !== undefined)
    }
    for (const lease of kept) this.#notKept(lease, failure)
  }

  /** Undefined, or the error. */
  async #keepOne(lease: LeaseRecord, withinMs: number): Promise<unknown> {
    const keepForMs = lease.holdAtLeastLeftMs
    const limits = {
      what: `release of "${lease.claim.name}"`,
      timeoutMs: Math.min(this.callLimitMs, withinMs),
      keepsProcessAlive: true,
    }
    const release = (call: Call) => this.engineSession.release(lease.claim, { keepForMs }, call)
    try {
      await callEngine(this.#context, limits, release)
      return undefined
    } catch (error) {
      this.#notKept(lease, error)
      return error
    }
  }

  /** The rest of its hold-at-least is gone: the name becomes free with the session, as if the holder had died. */
  #notKept(lease: LeaseRecord, error: unknown): void {
    if (hasListeners('release-failed')) emit('release-failed', { ...lease.about, error })
  }

  /** The longest time for which the engine keeps the claims of a session that is no longer renewed. */
  get #mostMsAtEngine(): number {
    return this.#ttlMs + this.#context.info.expirySlackMs(this.#ttlMs)
  }

  /**
   * Closes the session at the engine, once. Each confirmed part restarts the call limit; the TTL ends the call. Returns
   * how many of `claims` remain, and the error.
   */
  async #closeAtEngine(
    claims: number,
    { withinMs = this.#mostMsAtEngine, keepsProcessAlive = false } = {},
  ): Promise<{ readonly left: number; readonly error?: unknown }> {
    let left = claims
    const limits = {
      what: 'close of the session',
      timeoutMs: this.callLimitMs,
      keepsProcessAlive,
      onProgress: (stillLeft: number) => {
        left = stillLeft
      },
    }
    const close = (stop: Cancellation) =>
      callEngine(this.#context, { ...limits, stop }, (call) => this.engineSession.close(call))
    try {
      await withLimit(this.clock, Math.max(0, withinMs), close, { reason: () => undefined })
      return { left: 0 }
    } catch (error) {
      return { left, error }
    }
  }
}

/** Whether a name is to stay closed, for others or for a holder who has not stopped yet, beyond the end of the session. */
function staysClosed(each: Attempt | Leftover, nowMs: number): boolean {
  if (each.state === 'unresolved') return each.closedUntilMs > nowMs
  return each.state === 'lingering' || (each.state === 'held' && (each.lease?.keepClosedMs ?? 0) > 0)
}

/** Releases in flight at once. */
const RELEASED_AT_ONCE = 500
