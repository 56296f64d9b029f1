/**
 * The keep-alives of one session, at most one in flight at a time. Each lists everything that rides on the session.
 *
 *   idle ──due, or a caller renews──▶ in flight                       [#send]
 *   in flight ──answered──▶ idle, next in a third of the TTL          [#apply]
 *   in flight ──failed, or not answered in time──▶ idle, next soon    [#failed]
 *
 * 1. A keep-alive confirms exactly the leases that it listed when it was sent, from the moment it was sent (T1, validity from the send time).
 *    It names their grants: the same attempt under another grant is not the lease that is believed in (T84, late duplicates).
 * 2. A failed keep-alive is not a "no": it puts leases into jeopardy, is tried again soon, and the deadline alone
 *    decides (T16, answers that never come; T30, renewals that stop silently; T33, black holes). An answer that comes late still counts,
 *    from its send time, unless the lease is over.
 */

import { Cancellation, unlessCancelled } from '../base/cancellation.ts'
import { instantOf, keepProcessAlive } from '../base/clock.ts'
import { emit, hasListeners } from '../base/events.ts'
import { inNeutralContext } from '../base/neutral-context.ts'
import type { CallOptions } from '../base/types.ts'
import type { Claim, Fencing, GrantedClaim, KeepAliveResult, LostClaim } from '../spi.ts'
import type { Attempt } from './attempt.ts'
import { callEngine } from './call.ts'
import type { LockerContext } from './context.ts'
import type { KeptSession } from './keeper.ts'
import type { LeaseRecord } from './lease.ts'
import { RenewalSchedule } from './renewal-schedule.ts'

interface Flight {
  readonly number: number
  readonly done: Promise<void>
}

export class KeepAlives<F extends Fencing> {
  readonly #context: LockerContext
  readonly #session: KeptSession<F>
  readonly #schedule: RenewalSchedule
  #flights = 0
  #flight: Flight | undefined

  constructor(context: LockerContext, session: KeptSession<F>) {
    this.#context = context
    this.#session = session
    this.#schedule = new RenewalSchedule(context, session, (lateByMs) => this.#due(lateByMs))
    this.#schedule.next()
  }

  /** A keep-alive that has not been answered by the time the next one is due counts as failed. */
  get callLimitMs(): number {
    return Math.min(this.#context.callTimeoutMs, this.#schedule.intervalMs)
  }

  /** Resolves when a keep-alive that listed this lease has been confirmed. */
  async renew(lease: LeaseRecord, options: CallOptions = {}): Promise<void> {
    const isListed = this.#flight !== undefined && lease.listedInFlight === this.#flight.number
    const needed = isListed ? this.#flights : this.#flights + 1
    const stop = new Cancellation()
    const untie = stop.follow(options.signal)
    // Renewals without a caller do not keep the process alive. This one has a caller.
    const alive = keepProcessAlive(this.#context.clock)
    try {
      while (lease.confirmedInFlight < needed) {
        if (lease.ended !== undefined) throw lease.ended
        // The keep-alive renews what others hold as well, and the next ones follow from it.
        const flight = this.#flight ?? inNeutralContext(() => this.#send())
        await unlessCancelled(flight.done, stop)
      }
    } catch (error) {
      throw stop.cancelled ? error : (lease.ended ?? error)
    } finally {
      alive.cancel()
      untie()
    }
    if (lease.ended !== undefined) throw lease.ended
  }

  /** No more of them. What is in flight may still be answered, and then finds that the session has ended. */
  end(): void {
    this.#schedule.cancel()
  }

  #due(lateByMs: number): void {
    if (lateByMs > this.#schedule.intervalMs / 2 && hasListeners('paused'))
      emit('paused', { ...this.#about, lateByMs })
    const session = this.#session
    const now = instantOf(this.#context.clock)
    session.judgeAll(now)
    if (!session.isOpenAt(now)) return
    for (const lease of session.attempts.leases()) lease.warnIfHeldLong(now)
    if (!session.closeIfIdle() && this.#flight === undefined) this.#send()
  }

  #send(): Flight {
    this.#schedule.cancel()
    const session = this.#session
    const number = ++this.#flights
    const now = instantOf(this.#context.clock)
    const held: LeaseRecord[] = []
    const waiters: Attempt<F>[] = []
    const listed = { held: [] as GrantedClaim[], waiting: [] as Claim[] }
    for (const each of session.attempts.values()) {
      if (each.state === 'asked' || each.state === 'waiting') {
        waiters.push(each)
        listed.waiting.push(each.claim)
      }
      const lease = each.state === 'held' || each.state === 'lingering' ? each.lease : undefined
      if (lease === undefined) continue
      // The claim of a lease that is over is kept for as long as its body runs.
      if (each.state === 'held' && !lease.isLiveAt(now)) continue
      listed.held.push(lease.claim)
      if (each.state === 'held') held.push(lease)
    }
    for (const lease of held) lease.listedInFlight = number
    const limits = { what: 'keep-alive', timeoutMs: this.callLimitMs, stop: session.ended }
    const done = callEngine(this.#context, limits, (call) =>
      // Attached to the answer itself and not to the bounded call: a late confirmation is a confirmation.
      session.engineSession.keepAlive(listed, call).then((result) => {
        this.#landed(number)
        for (const lease of held) lease.confirmedInFlight = Math.max(lease.confirmedInFlight, number)
        this.#apply(result, held, waiters, now.monotonicMs)
      }),
    )
    this.#flight = { number, done }
    // Handled here; a caller of `renew` gets it as well (T30, renewals that stop silently).
    done.catch((error: unknown) => {
      this.#landed(number)
      this.#failed(error, held, now.monotonicMs)
    })
    return this.#flight
  }

  #landed(number: number): void {
    if (this.#flight?.number === number) this.#flight = undefined
  }

  #apply(
    result: KeepAliveResult<F>,
    held: readonly LeaseRecord[],
    waiters: readonly Attempt<F>[],
    sentMs: number,
  ): void {
    const session = this.#session
    const { attempts } = session
    const now = instantOf(this.#context.clock)
    if (!session.isOpenAt(now)) return
    if (result.kind === 'gone') {
      session.end('session-gone')
      return
    }
    session.prolonged(result.since, result.ttlMs, now)
    const lost = new Map(result.lost.map((claim) => [claim.attempt, claim]))
    for (const lease of held) {
      const loss = lost.get(lease.claim.attempt)
      if (loss === undefined) lease.confirm(result.since, result.ttlMs, now)
      else loseByEnginesWord(lease, loss)
    }
    for (const waiter of waiters) if (lost.has(waiter.claim.attempt)) waiter.lose()
    // Known are also those whose request or release is in flight: the engine may have heard of it, or not yet.
    for (const claim of result.unlisted) if (!attempts.has(claim.attempt)) session.resolve(claim)
    for (const grant of result.granted) {
      const attempt = attempts.get(grant.attempt)
      // A session that has answered it already has told the same, or an older grant.
      if (attempt?.state === 'asked' || attempt?.state === 'waiting')
        attempt.answer({ kind: 'granted', grant })
      if (attempt?.state !== 'held' || attempt.lease === undefined) continue
      // It was listed as waiting, and so it has been prolonged.
      if (attempt.lease.claim.grantId === grant.grantId) attempt.lease.confirm(grant.since, grant.ttlMs, now)
      else {
        loseByEnginesWord(attempt.lease, { attempt: grant.attempt, reason: 'deleted' })
        session.resolve(grant)
      }
    }
    const tookMs = now.monotonicMs - sentMs
    if (hasListeners('renewed')) emit('renewed', { ...this.#about, leases: held.length, tookMs })
    this.#schedule.next(tookMs)
    session.judgeAll(now)
  }

  #failed(error: unknown, held: readonly LeaseRecord[], sentMs: number): void {
    const now = instantOf(this.#context.clock)
    if (!this.#session.isOpenAt(now)) return
    const tookMs = now.monotonicMs - sentMs
    if (hasListeners('renewal-failed'))
      emit('renewal-failed', { ...this.#about, leases: held.length, error, tookMs })
    for (const lease of held) lease.jeopardize(error, now)
    this.#schedule.soon()
  }

  get #about(): { readonly backend: string; readonly namespace: string } {
    const { name, namespace } = this.#context.info
    return { backend: name, namespace }
  }
}

function loseByEnginesWord(lease: LeaseRecord, { reason, detail }: LostClaim): void {
  if (!lease.isLive) return
  if (reason === 'taken-over' && hasListeners('dual-owner-suspected'))
    emit('dual-owner-suspected', { ...lease.about, reason, remainingMs: lease.remainingMs })
  lease.lose(reason, 'gone', detail)
}
