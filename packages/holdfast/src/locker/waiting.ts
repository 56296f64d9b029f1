/**
 * How an acquire gets its grant: from the engine's own queue where there is one, else by polling. The wait ends at once when
 * `stop` is cancelled (a deadline, the caller's signal, a closing locker). What may be left at the engine is then abandoned (G6).
 *
 *   queue    enqueue ─────────────────────────────────────────▶ granted
 *   poll     try ─busy─▶ wait for the next poll, or for a hint that the name is free ─▶ try …
 *
 * When the session or the position in the queue is lost, the wait starts again in a new session. An engine that fails is
 * tried again with backoff until `stop`, if this locker has ever had a session there; else the failure is reported at once.
 */

import { type Cancellation, unlessCancelled } from '../base/cancellation.ts'
import { defaults } from '../base/defaults.ts'
import { BackendUnavailableError, isHoldfastError, outcomeOf, QueueFullError } from '../base/errors.ts'
import { newAttempt } from '../base/ids.ts'
import { ignore } from '../base/ignore.ts'
import type { AcquireRequest, AcquireResult, BackendSession, EnqueueResult, Fencing } from '../spi.ts'
import { backOff } from './back-off.ts'
import { callAnswerable, callForCaller } from './call.ts'
import type { LockerContext } from './context.ts'
import type { KeptSession } from './keeper.ts'
import type { LeaseRecord, LeaseTerms } from './lease.ts'
import type { Sessions } from './sessions.ts'

/** A request without its attempt, as the engine is told. Every try adds a fresh attempt. */
export interface Wanted {
  readonly ttlMs: number
  readonly request: Omit<AcquireRequest, 'attempt'>
  readonly terms: LeaseTerms
}

export interface WaitObserver {
  /** When `stop` is cancelled, by the monotonic clock. Engines are told, and need not grant to a caller that has gone. */
  readonly untilMs: number
  /** The name is not free, and the wait has begun. */
  onWaiting(): void
  /** A try failed, and another will follow. */
  onFailure(error: unknown): void
}

/** Several sessions in a row that die before they can be used mean that the engine is not well. */
const MAX_SESSIONS_PER_TRY = 3

type Tried = { kind: 'won'; lease: LeaseRecord } | { kind: 'busy'; retryAfterMs?: number } | { kind: 'again' }

export class Waiting<F extends Fencing> {
  readonly #sessions: Sessions<F>
  readonly #context: LockerContext

  constructor(sessions: Sessions<F>, context: LockerContext) {
    this.#sessions = sessions
    this.#context = context
  }

  /** One try. `null`: another client has it. */
  async tryOnce(wanted: Wanted, stop: Cancellation): Promise<LeaseRecord | null> {
    for (let tries = 0; tries < MAX_SESSIONS_PER_TRY; tries++) {
      const session = this.#sessions.ready(wanted) ?? (await this.#sessionFor(wanted, stop))
      const tried = await this.#tryIn(session, wanted, stop)
      if (tried.kind === 'won') return tried.lease
      if (tried.kind === 'busy') return null
    }
    throw new BackendUnavailableError(
      this.#context.backendName,
      `acquire of "${wanted.request.name}": sessions end before they can be used (is the TTL of ${wanted.ttlMs} ms too short for this engine?)`,
      'not-applied',
    )
  }

  /** Waits until granted; rejects with the reason of `stop` when that comes first. */
  async wait(wanted: Wanted, stop: Cancellation, observer: WaitObserver): Promise<LeaseRecord> {
    for (let rounds = 0; ; rounds++) {
      try {
        const session = this.#sessions.ready(wanted) ?? (await this.#sessionFor(wanted, stop))
        const lease = await (this.#context.info.waiting === 'queue'
          ? this.#waitInQueue(session, wanted, stop, observer)
          : this.#waitByPolling(session, wanted, stop, observer))
        if (lease !== null) return lease
      } catch (error) {
        const isFirstContact = !this.#sessions.hasReached
        if (stop.cancelled || isFirstContact || !isHoldfastError(error, 'BACKEND_UNAVAILABLE')) throw error
        observer.onFailure(error)
      }
      await backOff(this.#context, rounds, stop)
    }
  }

  #sessionFor(wanted: Wanted, stop: Cancellation): Promise<KeptSession<F>> {
    return unlessCancelled(this.#sessions.take(wanted), stop)
  }

  /** `null`: the session or the position was lost, or the grant came too late to be of use: start again. */
  async #waitInQueue(
    session: KeptSession<F>,
    wanted: Wanted,
    stop: Cancellation,
    observer: WaitObserver,
  ): Promise<LeaseRecord | null> {
    const waitMs = Math.max(0, observer.untilMs - this.#context.clock.monotonicMs())
    const request = this.#freshRequest(wanted, waitMs)
    let isPositionLost = false
    const limits = {
      what: `acquire of "${request.name}"`,
      timeoutMs: Number.POSITIVE_INFINITY,
      stop,
      keepsProcessAlive: true,
      onQueued: () => observer.onWaiting(),
    }
    try {
      const result = await callAnswerable<EnqueueResult<F>>(this.#context, limits, (call) => {
        session.addWaiter({
          claim: request,
          onLost: () => {
            isPositionLost = true
            call.giveUp(undefined)
          },
          // The push and the keep-alive may both bring the grant. The first one counts.
          onGranted: (grant) => call.answer({ kind: 'granted', grant }),
        })
        // `Sessions` has checked that it has the method.
        return (session.engineSession as Required<BackendSession<F>>).enqueue(request, call)
      })
      if (result.kind === 'queue-full') throw new QueueFullError(request.name, request.maxWaiters ?? 0)
      const lease = this.#adopt(session, wanted, result)
      return lease !== null && isShort(lease) ? await this.#confirmed(session, lease, stop) : lease
    } catch (error) {
      this.#settleUnknown(session, request, stop, error)
      if (stop.cancelled) throw stop.reason
      if (isPositionLost) return null
      throw error
    } finally {
      session.removeWaiter(request)
    }
  }

  async #waitByPolling(
    session: KeptSession<F>,
    wanted: Wanted,
    stop: Cancellation,
    observer: WaitObserver,
  ): Promise<LeaseRecord | null> {
    let waiting = false
    for (;;) {
      const tried = await this.#tryIn(session, wanted, stop)
      if (tried.kind === 'won') return tried.lease
      if (tried.kind === 'again' || !session.isSound) return null
      if (!waiting) observer.onWaiting()
      waiting = true
      await this.#pollPause(session, wanted.request.name, tried.retryAfterMs, stop)
    }
  }

  /** Until the next poll, or until the engine tells that the name may be free. */
  async #pollPause(
    session: KeptSession<F>,
    name: string,
    retryAfterMs: number | undefined,
    stop: Cancellation,
  ): Promise<void> {
    const { clock, random } = this.#context
    const pollMs = defaults.pollMs + random.fraction() * defaults.pollJitterMs
    const pause = Promise.withResolvers<void>()
    const timer = clock.setTimer(Math.min(pollMs, retryAfterMs ?? pollMs), pause.resolve)
    const takeBack = session.engineSession.onceFree?.(name, pause.resolve)
    const untie = stop.onCancel(() => pause.reject(stop.reason))
    await pause.promise.finally(() => {
      untie()
      takeBack?.()
      timer.cancel()
    })
  }

  #tryIn(session: KeptSession<F>, wanted: Wanted, stop: Cancellation): Promise<Tried> {
    const request = this.#freshRequest(wanted, Number.POSITIVE_INFINITY)
    return session.inFlight(request, async () => {
      let result: AcquireResult<F>
      try {
        result = await callForCaller(this.#context, `acquire of "${request.name}"`, stop, (call) =>
          session.engineSession.tryAcquire(request, call),
        )
      } catch (error) {
        this.#settleUnknown(session, request, stop, error)
        throw error
      }
      if (result.kind === 'busy') return result
      let lease = this.#adopt(session, wanted, result)
      if (lease !== null && isShort(lease)) lease = await this.#confirmed(session, lease, stop)
      return lease === null ? { kind: 'again' } : { kind: 'won', lease }
    })
  }

  /** An attempt with an unknown outcome: the session sees to it that it comes to nothing. */
  #settleUnknown(session: KeptSession<F>, request: AcquireRequest, stop: Cancellation, error: unknown): void {
    if (stop.cancelled || outcomeOf(error) === 'unknown') session.resolve(request)
  }

  /** `null`: the session has gone, or the grant's time is over (T6, late grants; T17, checks after waiting). */
  #adopt(
    session: KeptSession<F>,
    wanted: Wanted,
    result: Exclude<AcquireResult<F>, { kind: 'busy' }>,
  ): LeaseRecord | null {
    if (result.kind === 'granted') return session.adopt(result.grant, wanted.terms)
    session.end('session-gone')
    return null
  }

  /** If the keep-alive fails, the lease is worth what it was worth before. `null`: it is over by now. */
  async #confirmed(
    session: KeptSession<F>,
    lease: LeaseRecord,
    stop: Cancellation,
  ): Promise<LeaseRecord | null> {
    await session.renew(lease, { signal: stop.signal }).catch(ignore)
    return lease.isLive ? lease : null
  }

  #freshRequest(wanted: Wanted, waitMs: number): AcquireRequest {
    const request = { ...wanted.request, attempt: newAttempt(this.#context.random) }
    return waitMs < Number.POSITIVE_INFINITY ? { ...request, waitMs } : request
  }
}

/** After a failure the session's last keep-alive may be so old that the lease would be lost before its first renewal. */
function isShort(lease: LeaseRecord): boolean {
  return lease.engineLeftMs < lease.ttlMs / defaults.renewalsPerTtl
}
