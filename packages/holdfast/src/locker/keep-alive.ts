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
 *    decides (T16, answers that never come; T30, renewals that stop silently; T33, black holes). An answer that comes late still counts, from its send time, unless the lease is over.
 */

import { Cancellation, unlessCancelled } from '../base/cancellation.ts'
import { type Instant, keepProcessAlive } from '../base/clock.ts'
import type { LossReason } from '../base/errors.ts'
import { emit, hasListeners } from '../base/events.ts'
import { inNeutralContext } from '../base/neutral-context.ts'
import type { CallOptions } from '../base/types.ts'
import type { Call, Claim, Fencing, Grant, KeepAliveResult, ListedClaims, LostClaim } from '../spi.ts'
import { callEngine } from './call.ts'
import type { LockerContext } from './context.ts'
import type { LeaseRecord } from './lease.ts'
import { RenewalSchedule } from './renewal-schedule.ts'

/** A call that waits in the engine's queue. Its position ends with the session. */
export interface QueuedWaiter<F extends Fencing = Fencing> {
  readonly claim: Claim
  readonly onLost: (reason: LossReason) => void
  /** The engine says that it is granted, although its push has not (or not yet) arrived. */
  readonly onGranted: (grant: Grant<F>) => void
}

export interface KeepAliveTerms<F extends Fencing> {
  keepAlive(listed: ListedClaims, call: Call): Promise<KeepAliveResult<F>>
  /** Leases that ride on the session, by attempt. */
  readonly leases: ReadonlyMap<string, LeaseRecord>
  readonly lingering: ReadonlyMap<string, LeaseRecord>
  readonly waiters: ReadonlyMap<string, QueuedWaiter<F>>
  isKnown(attempt: string): boolean
  isOpen(): boolean
  ttlMs(): number
  /** The end of the session. */
  readonly stop: Cancellation
  judgeAll(): void
  /** Before a keep-alive without a caller: true if the session ends instead, because nothing rides on it. */
  closeIfIdle(): boolean
  onProlonged(since: Instant, ttlMs: number): void
  onGone(): void
  /** The engine has this claim on the session, and this locker does not know it. */
  onUnknown(claim: Claim): void
}

interface Flight {
  readonly number: number
  readonly done: Promise<void>
}

export class KeepAlives<F extends Fencing> {
  readonly #context: LockerContext
  readonly #terms: KeepAliveTerms<F>
  readonly #schedule: RenewalSchedule
  #flights = 0
  #flight: Flight | undefined

  constructor(context: LockerContext, terms: KeepAliveTerms<F>) {
    this.#context = context
    this.#terms = terms
    this.#schedule = new RenewalSchedule(
      context,
      () => terms.ttlMs(),
      (lateByMs) => this.#due(lateByMs),
    )
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
    this.#terms.judgeAll()
    if (!this.#terms.isOpen()) return
    for (const lease of this.#terms.leases.values()) lease.warnIfHeldLong()
    if (!this.#terms.closeIfIdle() && this.#flight === undefined) this.#send()
  }

  #send(): Flight {
    this.#schedule.cancel()
    const number = ++this.#flights
    const held = [...this.#terms.leases.values()].filter((lease) => lease.isLive)
    const waiters = [...this.#terms.waiters.values()]
    for (const lease of held) lease.listedInFlight = number
    const sentMs = this.#context.clock.monotonicMs()
    const done = callEngine(
      this.#context,
      { what: 'keep-alive', timeoutMs: this.callLimitMs, stop: this.#terms.stop },
      (call) => {
        const lingering = [...this.#terms.lingering.values()]
        const listed = {
          held: [...held, ...lingering].map((lease) => lease.claim),
          waiting: waiters.map((waiter) => waiter.claim),
        }
        const answer = this.#terms.keepAlive(listed, call)
        // Attached to the answer itself and not to the bounded call: a late confirmation is a confirmation.
        return answer.then((result) => {
          this.#landed(number)
          for (const lease of held) lease.confirmedInFlight = Math.max(lease.confirmedInFlight, number)
          this.#apply(result, held, waiters, sentMs)
        })
      },
    )
    this.#flight = { number, done }
    // Handled here; a caller of `renew` gets it as well (T30).
    done.catch((error: unknown) => {
      this.#landed(number)
      this.#failed(error, held, sentMs)
    })
    return this.#flight
  }

  #landed(number: number): void {
    if (this.#flight?.number === number) this.#flight = undefined
  }

  #apply(
    result: KeepAliveResult<F>,
    held: readonly LeaseRecord[],
    waiters: readonly QueuedWaiter<F>[],
    sentMs: number,
  ): void {
    const terms = this.#terms
    if (!terms.isOpen()) return
    if (result.kind === 'gone') {
      terms.onGone()
      return
    }
    terms.onProlonged(result.since, result.ttlMs)
    const lost = new Map(result.lost.map((claim) => [claim.attempt, claim]))
    for (const lease of held) {
      const loss = lost.get(lease.claim.attempt)
      if (loss === undefined) lease.confirm(result.since, result.ttlMs)
      else loseByEnginesWord(lease, loss)
    }
    for (const waiter of waiters) {
      const loss = lost.get(waiter.claim.attempt)
      if (loss !== undefined && terms.waiters.has(waiter.claim.attempt)) waiter.onLost(loss.reason)
    }
    for (const claim of result.unlisted) if (!terms.isKnown(claim.attempt)) terms.onUnknown(claim)
    for (const grant of result.granted) {
      terms.waiters.get(grant.attempt)?.onGranted(grant)
      const lease = terms.leases.get(grant.attempt)
      if (lease === undefined) continue
      // The push was quicker than this answer; a claim that was listed as waiting has been prolonged all the same.
      if (lease.claim.grantId === grant.grantId) lease.confirm(grant.since, grant.ttlMs)
      else {
        loseByEnginesWord(lease, { attempt: grant.attempt, reason: 'deleted' })
        terms.onUnknown(grant)
      }
    }
    const tookMs = this.#context.clock.monotonicMs() - sentMs
    if (hasListeners('renewed')) emit('renewed', { ...this.#about, leases: held.length, tookMs })
    this.#schedule.next(tookMs)
    terms.judgeAll()
  }

  #failed(error: unknown, held: readonly LeaseRecord[], sentMs: number): void {
    if (!this.#terms.isOpen()) return
    const tookMs = this.#context.clock.monotonicMs() - sentMs
    if (hasListeners('renewal-failed'))
      emit('renewal-failed', { ...this.#about, leases: held.length, error, tookMs })
    for (const lease of held) lease.jeopardize(error)
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
