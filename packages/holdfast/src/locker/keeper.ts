/**
 * One session of the engine, and everything that rides on it: leases, and waiters in the queue. Keep-alives prolong all of it
 * together (`keep-alive.ts`); here is what they prolong, until when it may be believed, and how it ends.
 *
 *   open ──unresolved claim──▶ open, but takes no new leases                [isSound]
 *   open ──worn out──▶ open, takes new leases only if no other can          [takesNewLeases]
 *   open ──its own deadline | engine says gone | unresolved for one TTL──▶ gone   [end]
 *   open ──close──▶ gone
 *
 * An acquire or release with an unknown outcome is *unresolved* until `abandon` has been answered; while something is
 * unresolved the session takes no new leases, and after one TTL of it the session is given up, so that nothing becomes
 * immortal through a live session (T15, late acquires; T29, late renewals).
 */

import { Cancellation } from '../base/cancellation.ts'
import {
  type Clock,
  elapsedMs,
  elapsedUntil,
  fresherOf,
  type Instant,
  instantOf,
  type Timer,
} from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'
import { BackendUnavailableError, type LossReason } from '../base/errors.ts'
import { emit, hasListeners } from '../base/events.ts'
import { withEpoch } from '../base/fence.ts'
import { TransientMap } from '../base/transient-map.ts'
import type { CallOptions, ReleaseOutcome } from '../base/types.ts'
import { withLimit } from '../base/within.ts'
import type { BackendSession, Call, Claim, Fencing, Grant, GrantedClaim } from '../spi.ts'
import { callEngine, callForCaller } from './call.ts'
import type { LockerContext } from './context.ts'
import { watchForDrop } from './dropped.ts'
import { KeepAlives, type QueuedWaiter } from './keep-alive.ts'
import { type AtEngine, type LeaseHost, LeaseRecord, type LeaseTerms } from './lease.ts'
import { SessionLeases } from './session-leases.ts'
import { Unresolved } from './unresolved.ts'

export class KeptSession<F extends Fencing = Fencing> implements LeaseHost {
  readonly engineSession: BackendSession<F>
  readonly clock: Clock
  readonly about: LeaseHost['about']
  readonly epoch: number
  /** That of every lease on it, where the engine ties it to the session. */
  readonly lockDelayMs: number
  readonly #context: LockerContext
  readonly #onEnd: (session: KeptSession<F>) => void
  readonly #leases = new SessionLeases()
  /** Claims that are kept at the engine although their leases are over: their bodies have not stopped yet (T53, early releases). */
  readonly #lingering = new Map<string, LeaseRecord>()
  readonly #waiters = new TransientMap<string, QueuedWaiter<F>>()
  readonly #unresolved: Unresolved
  /** Attempts that are being asked for or released right now: the engine may know more of them than we do. */
  readonly #inFlight = new TransientMap<string, true>()
  readonly #keepAlives: KeepAlives<F>
  readonly #ended = new Cancellation()
  #since: Instant
  #ttlMs: number
  #deadlineTimer: Timer | undefined
  #deadlineTimerDueMs = Number.POSITIVE_INFINITY
  #idleSinceMs: number

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
    this.#unresolved = new Unresolved(context, {
      abandon: (claim, call) => engineSession.abandon(claim, call),
      release: (claim, keepForMs, call) => engineSession.release(claim, { keepForMs }, call),
      callLimitMs: () => this.#keepAlives.callLimitMs,
      ttlMs: () => this.#ttlMs,
      stop: this.#ended,
      onResolved: () => this.#noteIdle(),
      onHopeless: () => this.end('unreachable'),
    })
    this.#keepAlives = new KeepAlives(context, {
      keepAlive: (listed, call) => engineSession.keepAlive(listed, call),
      leases: this.#leases,
      lingering: this.#lingering,
      waiters: this.#waiters,
      isKnown: (attempt) => this.#isKnown(attempt),
      isOpen: () => this.isOpen,
      ttlMs: () => this.#ttlMs,
      stop: this.#ended,
      judgeAll: () => this.#judgeAll(),
      closeIfIdle: () => this.#closeIfIdle(),
      onProlonged: (since, ttlMs) => this.#prolonged(since, ttlMs),
      onGone: () => this.end('session-gone'),
      onUnknown: (claim) => this.resolve(claim),
    })
    this.#armDeadlineTimer(this.#timeLeftMs())
  }

  get isOpen(): boolean {
    if (!this.#ended.cancelled && this.#timeLeftMs() <= 0) this.end('expired')
    return !this.#ended.cancelled
  }

  /** Open, and nothing is unresolved: a lease that is put on it will not be lost for the sake of another. */
  get isSound(): boolean {
    return this.isOpen && this.#unresolved.size === 0
  }

  get takesNewLeases(): boolean {
    return this.isOpen && this.#unresolved.size === 0 && !this.#isWornOut
  }

  get isIdle(): boolean {
    if (this.#leases.size > 0 || this.#waiters.size > 0 || this.#inFlight.size > 0) return false
    return this.#lingering.size === 0 && this.#unresolved.size === 0
  }

  get leases(): Iterable<LeaseRecord> {
    return this.#leases.values()
  }

  leasesOn(name: string): Iterable<LeaseRecord> {
    return this.#leases.onName(name)
  }

  /** Every abandoned attempt leaves a mark at the engine for as long as the session lives. */
  get #isWornOut(): boolean {
    return this.#unresolved.abandoned >= this.#context.maxAbandonedPerSession
  }

  driftMs(ttlMs: number): number {
    return this.#context.info.driftMs(ttlMs)
  }

  /** A lease for what the engine granted, or null if its time is already up (T6, late grants): then it is given back. */
  adopt(grant: Grant<F>, terms: LeaseTerms): LeaseRecord | null {
    if (!this.isOpen) return null
    const now = instantOf(this.clock)
    const leftMs = grant.ttlMs - this.driftMs(grant.ttlMs) - elapsedUntil(now, grant.since)
    if (leftMs <= 0) {
      this.resolve(grant)
      return null
    }
    const token = grant.token === null ? null : withEpoch(this.epoch, grant.token)
    const lease = new LeaseRecord(this, grant, token, terms, now)
    this.#leases.set(grant.attempt, lease)
    const firstDueMs = Math.min(leftMs, terms.maxHoldMs)
    if (now.monotonicMs + firstDueMs < this.#deadlineTimerDueMs) this.#armDeadlineTimer(firstDueMs)
    return lease
  }

  /** While `work` runs, the attempt is ours even if the engine's word on it has not arrived. */
  async inFlight<T>(claim: Claim, work: () => Promise<T>): Promise<T> {
    this.#inFlight.set(claim.attempt, true)
    try {
      return await work()
    } finally {
      this.#inFlight.delete(claim.attempt)
    }
  }

  addWaiter(waiter: QueuedWaiter<F>): void {
    this.#waiters.set(waiter.claim.attempt, waiter)
  }

  removeWaiter(claim: Claim): void {
    this.#waiters.delete(claim.attempt)
    this.#noteIdle()
  }

  leaseLost(lease: LeaseRecord, atEngine: AtEngine): void {
    this.#leases.delete(lease.claim.attempt)
    if (atEngine === 'kept') this.#lingering.set(lease.claim.attempt, lease)
    if (atEngine === 'abandoned') this.resolve(lease.claim, lease.keepClosedMs)
    this.#noteIdle()
  }

  async releaseAtEngine(lease: LeaseRecord, keepForMs: number): Promise<ReleaseOutcome> {
    const { claim } = lease
    this.#leases.delete(claim.attempt)
    if (this.#ended.cancelled) return 'not-held'
    const release = (call: Call) => this.engineSession.release(claim, { keepForMs }, call)
    this.#inFlight.set(claim.attempt, true)
    try {
      return await callForCaller(this.#context, `release of "${claim.name}"`, this.#ended, release)
    } catch (error) {
      // A session that has ended takes its claims with it; else the claim stays unresolved until abandoned.
      if (!this.#ended.cancelled) this.resolve(claim, keepForMs)
      if (hasListeners('release-failed')) emit('release-failed', { ...lease.about, error })
      return 'unknown'
    } finally {
      this.#inFlight.delete(claim.attempt)
      this.#noteIdle()
    }
  }

  /** The engine may or may not have this claim: sees to it, in the background, that it has not and never will. */
  resolve(claim: Claim | GrantedClaim, keepForMs = 0): void {
    if (!this.#ended.cancelled) this.#unresolved.add(claim, keepForMs)
  }

  /** Resolves when a keep-alive that listed this lease has been confirmed. */
  renew(lease: LeaseRecord, options?: CallOptions): Promise<void> {
    return this.#keepAlives.renew(lease, options)
  }

  #prolonged(since: Instant, ttlMs: number): void {
    this.#since = fresherOf(this.clock, this.#since, since)
    this.#ttlMs = ttlMs
  }

  #isKnown(attempt: string): boolean {
    return [this.#leases, this.#lingering, this.#waiters, this.#unresolved, this.#inFlight].some((known) =>
      known.has(attempt),
    )
  }

  #timeLeftMs(): number {
    return this.#ttlMs - this.driftMs(this.#ttlMs) - elapsedMs(this.clock, this.#since)
  }

  /** One timer for all deadlines of the session, set to the earliest. */
  #armDeadlineTimer(delayMs: number): void {
    this.#deadlineTimer?.cancel()
    this.#deadlineTimerDueMs = this.clock.monotonicMs() + delayMs
    this.#deadlineTimer = this.clock.setTimer(delayMs, () => this.#judgeAll())
  }

  #judgeAll(): void {
    if (!this.isOpen) return
    let earliestMs = this.#timeLeftMs()
    for (const lease of this.#leases.values()) {
      watchForDrop(lease)
      const leftMs = lease.remainingMs
      if (leftMs > 0) earliestMs = Math.min(earliestMs, leftMs)
    }
    if (!this.#ended.cancelled) this.#armDeadlineTimer(earliestMs)
  }

  #closeIfIdle(): boolean {
    const isOver = this.isIdle && this.clock.monotonicMs() - this.#idleSinceMs >= defaults.idleSessionMs
    if (isOver) this.#context.background.run(() => this.close())
    return isOver
  }

  #noteIdle(): void {
    if (!this.isIdle) return
    this.#idleSinceMs = this.clock.monotonicMs()
    if (this.#isWornOut && !this.#ended.cancelled) this.#context.background.run(() => this.close())
  }

  /** Everything that rides on it is lost. What the engine still has of it ends when the engine's own time is up. */
  end(reason: LossReason): void {
    if (this.#ended.cancelled) return
    // A close would free the names at once: also those that must stay closed, or whose holder has not stopped yet (T53).
    const isDelayed = [...this.#leases.values()].some((lease) => lease.keepClosedMs > 0)
    const mustWait = isDelayed || this.#lingering.size > 0 || this.#unresolved.keepsClosed
    const isOurWord = reason !== 'session-gone' && !mustWait
    this.#finish(reason)
    if (isOurWord) this.#context.background.run(() => this.#closeAtEngine(0))
  }

  async close(): Promise<void> {
    if (this.#ended.cancelled) return
    const claims = this.#leases.size + this.#lingering.size + this.#waiters.size + this.#unresolved.size
    this.#finish('closed')
    const endedAtMs = this.clock.monotonicMs()
    const expireWithin = () => this.#mostMsAtEngine - (this.clock.monotonicMs() - endedAtMs)
    await this.#keepClosed(expireWithin)
    const { left, error } = await this.#closeAtEngine(claims, {
      withinMs: expireWithin(),
      keepsProcessAlive: true,
    })
    const expireWithinMs = expireWithin()
    if (left === 0 || expireWithinMs <= 0 || !hasListeners('close-failed')) return
    const { backend, namespace } = this.about
    emit('close-failed', { backend, namespace, left, expireWithinMs, error })
  }

  #finish(reason: LossReason): void {
    this.#ended.cancel(
      new BackendUnavailableError(this.about.backend, `the session has ended (${reason})`, 'unknown'),
    )
    this.#keepAlives.end()
    this.#deadlineTimer?.cancel()
    this.#onEnd(this)
    for (const lease of [...this.#leases.values()]) {
      lease.judge()
      if (reason === 'expired') lease.expire()
      else lease.lose(reason)
    }
    this.#leases.clear()
    const waiters = [...this.#waiters.values()]
    this.#waiters.clear()
    for (const waiter of waiters) waiter.onLost(reason)
  }

  /** Releases in batches, so that no lease's call times out while thousands of others are sent first. */
  async #keepClosed(expireWithin: () => number): Promise<void> {
    const kept = [...this.#lingering.values()].filter((lease) => lease.holdAtLeastLeftMs > 0)
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
      timeoutMs: Math.min(this.#keepAlives.callLimitMs, withinMs),
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
      timeoutMs: this.#keepAlives.callLimitMs,
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

/** Releases in flight at once. */
const RELEASED_AT_ONCE = 500
