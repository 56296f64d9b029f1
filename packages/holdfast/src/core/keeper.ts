/**
 * Keeps one session of the engine alive, and with it everything that rides on it: one keep-alive serves all
 * leases and all places in line.
 *
 *   open ──unresolved claim, or worn out──▶ open, but takes no new leases   [takesNewLeases]
 *   open ──its own deadline | engine says gone | unresolved for one TTL──▶ gone   [end]
 *   open ──close──▶ gone
 *
 * 1. A keep-alive confirms exactly the leases that it listed when it was sent, from the moment it was sent (T1).
 * 2. A failed keep-alive is not a "no": it puts leases into jeopardy, is tried again soon, and the deadline alone
 *    decides (T16, T30, T33). An answer that comes late still counts, from its send time, unless the lease is over.
 * 3. An acquire or release with an unknown outcome is *unresolved* until `abandon` has been answered; while
 *    something is unresolved the session takes no new leases, and after one TTL of it the session is given up, so
 *    that nothing becomes immortal through a live session (T15, T29).
 */
import type { BackendSession, Call, Claim, Fencing, Grant, KeepAliveResult } from '../spi.ts'
import { callEngine } from './call.ts'
import { Cancellation, unlessCancelled } from './cancellation.ts'
import { type Clock, elapsedMs, type Instant, laterOf, type Timer } from './clock.ts'
import type { LockerContext } from './context.ts'
import { defaults } from './defaults.ts'
import { BackendUnavailableError, type LossReason } from './errors.ts'
import { emit, hasListeners } from './events.ts'
import { withEpoch } from './fence.ts'
import { type AtEngine, type LeaseHost, LeaseRecord, type LeaseTerms } from './lease.ts'
import { RenewalSchedule } from './renewal-schedule.ts'
import type { CallOptions, ReleaseOutcome } from './types.ts'
import { Unresolved } from './unresolved.ts'

interface Flight {
  readonly number: number
  readonly done: Promise<void>
}

/** A waiter's place in the engine's line, which ends with the session. */
export interface PlaceInLine<F extends Fencing = Fencing> {
  readonly claim: Claim
  readonly onLost: (reason: LossReason) => void
  /** The engine says that the turn has come, although its push has not (or not yet) arrived. */
  readonly onGranted: (grant: Grant<F>) => void
}

export class KeptSession<F extends Fencing = Fencing> implements LeaseHost {
  readonly engineSession: BackendSession<F>
  readonly clock: Clock
  readonly about: LeaseHost['about']
  readonly epoch: number
  readonly #context: LockerContext
  readonly #onEnd: (session: KeptSession<F>) => void
  readonly #leases = new Map<string, LeaseRecord>()
  /** Claims that are kept at the engine although their leases are over: their bodies have not stopped yet (T53). */
  readonly #lingering = new Map<string, LeaseRecord>()
  readonly #places = new Map<string, PlaceInLine<F>>()
  readonly #unresolved: Unresolved
  /** Attempts that are being asked for or released right now: the engine may know more of them than we do. */
  readonly #inFlight = new Set<string>()
  readonly #renewals: RenewalSchedule
  readonly #ended = new Cancellation()
  #since: Instant
  #ttlMs: number
  #flights = 0
  #flight: Flight | undefined
  #deadlineTimer: Timer | undefined
  #deadlineTimerDueMs = Number.POSITIVE_INFINITY
  #idleSinceMs: number

  constructor(
    context: LockerContext,
    engineSession: BackendSession<F>,
    onEnd: (session: KeptSession<F>) => void,
  ) {
    this.#context = context
    this.engineSession = engineSession
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
      callLimitMs: () => this.#callLimitMs(),
      ttlMs: () => this.#ttlMs,
      stop: this.#ended,
      onResolved: () => this.#noteIdle(),
      onHopeless: () => this.end('unreachable'),
    })
    this.#renewals = new RenewalSchedule(
      context,
      () => this.#ttlMs,
      (lateByMs) => this.#renewalDue(lateByMs),
    )
    this.#renewals.next()
    this.#armDeadlineTimer(this.#timeLeftMs())
  }

  get isOpen(): boolean {
    if (!this.#ended.cancelled && this.#timeLeftMs() <= 0) this.end('expired')
    return !this.#ended.cancelled
  }

  get takesNewLeases(): boolean {
    return this.isOpen && this.#unresolved.size === 0 && !this.#isWornOut
  }

  get isIdle(): boolean {
    const { size: inFlight } = this.#inFlight
    return (
      this.#leases.size + this.#lingering.size + this.#places.size + this.#unresolved.size + inFlight === 0
    )
  }

  get leases(): Iterable<LeaseRecord> {
    return this.#leases.values()
  }

  /** Every abandoned attempt leaves a mark at the engine for as long as the session lives. */
  get #isWornOut(): boolean {
    return this.#unresolved.abandoned >= defaults.maxAbandonedPerSession
  }

  driftMs(ttlMs: number): number {
    return this.#context.info.driftMs(ttlMs)
  }

  // --- what rides on it ------------------------------------------------------------------------------------

  /** A lease for what the engine granted, or null if its time is already up (T6): then it is given back. */
  adopt(grant: Grant<F>, terms: LeaseTerms): LeaseRecord | null {
    if (!this.isOpen) return null
    const leftMs = grant.ttlMs - this.driftMs(grant.ttlMs) - elapsedMs(this.clock, grant.since)
    if (leftMs <= 0) {
      this.resolve(grant)
      return null
    }
    const token = grant.token === null ? null : withEpoch(this.epoch, grant.token)
    const lease = new LeaseRecord(this, grant, token, terms)
    this.#leases.set(grant.attempt, lease)
    const firstDueMs = Math.min(leftMs, terms.maxHoldMs)
    if (this.clock.monotonicMs() + firstDueMs < this.#deadlineTimerDueMs) this.#armDeadlineTimer(firstDueMs)
    return lease
  }

  /** While `work` runs, the attempt is ours even if the engine's word on it has not arrived. */
  async inFlight<T>(claim: Claim, work: () => Promise<T>): Promise<T> {
    this.#inFlight.add(claim.attempt)
    try {
      return await work()
    } finally {
      this.#inFlight.delete(claim.attempt)
    }
  }

  takePlace(place: PlaceInLine<F>): void {
    this.#places.set(place.claim.attempt, place)
  }

  leavePlace(claim: Claim): void {
    this.#places.delete(claim.attempt)
    this.#noteIdle()
  }

  leaseLost(lease: LeaseRecord, atEngine: AtEngine): void {
    this.#leases.delete(lease.claim.attempt)
    if (atEngine === 'kept') this.#lingering.set(lease.claim.attempt, lease)
    if (atEngine === 'abandoned') this.resolve(lease.claim, lease.terms.lockDelayMs)
    this.#noteIdle()
  }

  // --- releasing -------------------------------------------------------------------------------------------

  async releaseAtEngine(lease: LeaseRecord, keepForMs: number): Promise<ReleaseOutcome> {
    const { claim } = lease
    this.#leases.delete(claim.attempt)
    if (this.#ended.cancelled) return 'not-held'
    const limits = {
      what: `release of "${claim.name}"`,
      timeoutMs: this.#context.callTimeoutMs,
      keepsProcessAlive: true,
      stop: this.#ended,
    }
    const release = (call: Call) => this.engineSession.release(claim, { keepForMs }, call)
    try {
      return await this.inFlight(claim, () => callEngine(this.#context, limits, release))
    } catch (error) {
      // A session that has ended takes its claims with it; else the claim stays unresolved until abandoned.
      if (!this.#ended.cancelled) this.resolve(claim, keepForMs)
      if (hasListeners('release-failed')) emit('release-failed', { ...lease.about, error })
      return 'unknown'
    } finally {
      this.#noteIdle()
    }
  }

  /** The engine may or may not have this claim: sees to it, in the background, that it has not and never will. */
  resolve(claim: Claim, keepForMs = 0): void {
    if (!this.#ended.cancelled) this.#unresolved.add(claim, keepForMs)
  }

  // --- renewing --------------------------------------------------------------------------------------------

  /** Resolves when a keep-alive that listed this lease has been confirmed. */
  async renew(lease: LeaseRecord, options: CallOptions = {}): Promise<void> {
    const isListed = this.#flight !== undefined && lease.listedInFlight === this.#flight.number
    const needed = isListed ? this.#flights : this.#flights + 1
    const stop = new Cancellation()
    const untie = stop.follow(options.signal)
    // Renewals that nobody asked for do not keep the process alive; this one has a caller who waits.
    const alive = this.clock.setTimer(Number.MAX_SAFE_INTEGER, () => {}, { keepsProcessAlive: true })
    try {
      while (lease.confirmedInFlight < needed) {
        if (lease.ended !== undefined) throw lease.ended
        await unlessCancelled((this.#flight ?? this.#sendKeepAlive()).done, stop)
      }
    } catch (error) {
      throw stop.cancelled ? error : (lease.ended ?? error)
    } finally {
      alive.cancel()
      untie()
    }
    if (lease.ended !== undefined) throw lease.ended
  }

  #sendKeepAlive(): Flight {
    this.#renewals.cancel()
    const number = ++this.#flights
    const held = [...this.#leases.values()].filter((lease) => lease.isLive)
    const places = [...this.#places.values()]
    for (const lease of held) lease.listedInFlight = number
    const sentMs = this.clock.monotonicMs()
    const done = callEngine(
      this.#context,
      { what: 'keep-alive', timeoutMs: this.#callLimitMs(), stop: this.#ended },
      (call) => {
        const listed = {
          held: [
            ...held.map((lease) => lease.claim),
            ...[...this.#lingering.values()].map((lease) => lease.claim),
          ],
          waiting: places.map((place) => place.claim),
        }
        const answer = this.engineSession.keepAlive(listed, call)
        // Attached to the answer itself and not to the bounded call: a late confirmation is a confirmation.
        return answer.then((result) => {
          this.#landed(number)
          for (const lease of held) lease.confirmedInFlight = Math.max(lease.confirmedInFlight, number)
          this.#apply(result, held, places, sentMs)
        })
      },
    )
    this.#flight = { number, done }
    // Handled here; whoever called `renew` gets it as well (T30).
    done.catch((error: unknown) => {
      this.#landed(number)
      this.#renewalFailed(error, held)
    })
    return this.#flight
  }

  #landed(number: number): void {
    if (this.#flight?.number === number) this.#flight = undefined
  }

  #apply(
    result: KeepAliveResult<F>,
    held: readonly LeaseRecord[],
    places: readonly PlaceInLine<F>[],
    sentMs: number,
  ): void {
    if (!this.isOpen) return
    if (result.kind === 'gone') {
      this.end('session-gone')
      return
    }
    this.#since = laterOf(this.#since, result.since)
    this.#ttlMs = result.ttlMs
    const lost = new Map(result.lost.map((claim) => [claim.attempt, claim.reason]))
    for (const lease of held) {
      const reason = lost.get(lease.claim.attempt)
      if (reason === undefined) lease.confirm(result.since, result.ttlMs)
      else this.#loseByEnginesWord(lease, reason)
    }
    for (const place of places) {
      const reason = lost.get(place.claim.attempt)
      if (reason !== undefined && this.#places.has(place.claim.attempt)) place.onLost(reason)
    }
    for (const claim of result.unlisted) if (!this.#isKnown(claim.attempt)) this.resolve(claim)
    for (const grant of result.granted) {
      this.#places.get(grant.attempt)?.onGranted(grant)
      // Its push was quicker than this answer; what was listed as waiting has been prolonged all the same.
      this.#leases.get(grant.attempt)?.confirm(grant.since, grant.ttlMs)
    }
    if (hasListeners('renewed')) {
      const tookMs = this.clock.monotonicMs() - sentMs
      emit('renewed', {
        backend: this.about.backend,
        namespace: this.about.namespace,
        leases: held.length,
        tookMs,
      })
    }
    this.#renewals.next()
    this.#judgeAll()
  }

  #isKnown(attempt: string): boolean {
    return [this.#leases, this.#lingering, this.#places, this.#unresolved, this.#inFlight].some((known) =>
      known.has(attempt),
    )
  }

  #loseByEnginesWord(lease: LeaseRecord, reason: LossReason): void {
    if (!lease.isLive) return
    if (reason === 'taken-over' && hasListeners('dual-owner-suspected'))
      emit('dual-owner-suspected', { ...lease.about, reason, remainingMs: lease.remainingMs })
    lease.lose(reason, 'gone')
  }

  #renewalFailed(error: unknown, held: readonly LeaseRecord[]): void {
    if (!this.isOpen) return
    if (hasListeners('renewal-failed'))
      emit('renewal-failed', {
        backend: this.about.backend,
        namespace: this.about.namespace,
        leases: held.length,
        error,
      })
    for (const lease of held) lease.jeopardize()
    this.#renewals.soon()
  }

  #renewalDue(lateByMs: number): void {
    if (lateByMs > this.#renewals.intervalMs / 2 && hasListeners('paused'))
      emit('paused', { backend: this.about.backend, namespace: this.about.namespace, lateByMs })
    this.#judgeAll()
    if (!this.isOpen) return
    for (const lease of this.#leases.values()) lease.warnIfHeldLong()
    const idleForMs = this.clock.monotonicMs() - this.#idleSinceMs
    if (this.isIdle && idleForMs >= defaults.idleSessionMs) this.#context.background.run(() => this.close())
    else if (this.#flight === undefined) this.#sendKeepAlive()
  }

  /** A keep-alive that has not been answered by the time the next one is due counts as failed. */
  #callLimitMs(): number {
    return Math.min(this.#context.callTimeoutMs, this.#renewals.intervalMs)
  }

  // --- ending ----------------------------------------------------------------------------------------------

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
      const leftMs = lease.remainingMs
      if (leftMs > 0) earliestMs = Math.min(earliestMs, leftMs)
    }
    if (!this.#ended.cancelled) this.#armDeadlineTimer(earliestMs)
  }

  #noteIdle(): void {
    if (!this.isIdle) return
    this.#idleSinceMs = this.clock.monotonicMs()
    if (this.#isWornOut && !this.#ended.cancelled) this.#context.background.run(() => this.close())
  }

  /** Everything that rides on it is lost. What the engine still has of it ends when the engine's own time is up. */
  end(reason: LossReason): void {
    if (this.#ended.cancelled) return
    // The engine's own end brings the lock-delay, a close would not.
    const isDelayed = [...this.#leases.values()].some((lease) => lease.terms.lockDelayMs > 0)
    const isOurWord = reason !== 'session-gone' && !isDelayed
    this.#finish(reason)
    if (isOurWord) this.#context.background.run(() => this.#closeAtEngine())
  }

  async close(): Promise<void> {
    if (this.#ended.cancelled) return
    this.#finish('closed')
    await Promise.all([...this.#lingering.values()].map((lease) => this.#keepClosed(lease)))
    await this.#closeAtEngine({ keepsProcessAlive: true })
  }

  #finish(reason: LossReason): void {
    this.#ended.cancel(
      new BackendUnavailableError(this.about.backend, `the session has ended (${reason})`, 'unknown'),
    )
    this.#renewals.cancel()
    this.#deadlineTimer?.cancel()
    this.#onEnd(this)
    for (const lease of [...this.#leases.values()]) {
      lease.judge()
      lease.lose(reason)
    }
    this.#leases.clear()
    const places = [...this.#places.values()]
    this.#places.clear()
    for (const place of places) place.onLost(reason)
  }

  async #keepClosed(lease: LeaseRecord): Promise<void> {
    const keepForMs = lease.holdAtLeastLeftMs
    if (keepForMs === 0) return
    const limits = {
      what: `release of "${lease.claim.name}"`,
      timeoutMs: this.#callLimitMs(),
      keepsProcessAlive: true,
    }
    const release = (call: Call) => this.engineSession.release(lease.claim, { keepForMs }, call)
    await callEngine(this.#context, limits, release).catch(() => {})
  }

  /** Once, as a courtesy to whoever waits: without an answer the session ends by its TTL. */
  async #closeAtEngine({ keepsProcessAlive = false } = {}): Promise<void> {
    const limits = { what: 'close of the session', timeoutMs: this.#callLimitMs(), keepsProcessAlive }
    await callEngine(this.#context, limits, (call) => this.engineSession.close(call)).catch(() => {})
  }
}
