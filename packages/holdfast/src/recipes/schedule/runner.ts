/**
 * The tick runner: takes the lease of the schedule's name, reads the record, and starts at most one tick. Its protocol, and
 * what may go wrong between the steps, stand at the top of `recipes/schedule.ts`.
 */

import { onAborted } from '../../base/aborting.ts'
import { callSafely } from '../../base/call-safely.ts'
import { dateOf, pause } from '../../base/clock.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { emit, hasListeners, type TickOutcome } from '../../base/events.ts'
import type { Fence } from '../../base/fence.ts'
import { growingPauseMs } from '../../base/pauses.ts'
import type { Fencing, Lease, Locker } from '../../base/types.ts'
import { type Asked, decide, earlierRuns } from './decide.ts'
import type { SetAsideTick, Terms, Tick, TickJob } from './options.ts'
import { formatRecord, parseRecord, type TickRecord } from './record.ts'

/** Pauses after a failure of the engine; they double up to the longest (T87, hot retries after an outage). */
const PAUSES = { firstMs: 1_000, longestMs: 30_000 }
/** If a record is further ahead of this clock, one of the two clocks is wrong. */
const CREDIBLE_SKEW_MS = 3_600_000

interface Passed {
  readonly outcome: TickOutcome
  /** There may be another tick to start. */
  readonly more: boolean
}

export class Runner<F extends Fencing> {
  readonly #locker: Locker<F>
  readonly #terms: Terms
  readonly #job: TickJob<F>
  /** Aborts the signal of the running job. */
  readonly #stop = new AbortController()
  readonly #refused = new AbortController()
  /** No further tick starts: the runner was stopped, or its locker takes no new leases. In the second case the running job goes on. */
  readonly stopped = AbortSignal.any([this.#stop.signal, this.#refused.signal])
  readonly #running = new Set<Promise<unknown>>()
  readonly #untie: () => void

  constructor(locker: Locker<F>, terms: Terms, job: TickJob<F>) {
    this.#locker = locker
    this.#terms = terms
    this.#job = job
    const { signal } = terms
    this.#untie = onAborted(signal, ({ reason }) => this.#stop.abort(reason))
  }

  /** Whole milliseconds, as they stand in the record. */
  get #nowMs(): number {
    return Math.round(this.#locker.clock.wallMs())
  }

  /**
   * Runs ticks until nothing is left to do for this replica. `ask` is called under the lease. After a failure of the engine it
   * tries again while `isWanted`. Never rejects.
   */
  attempt(ask: () => Asked, isWanted = () => true): Promise<TickOutcome> {
    return this.#track(this.#attempt(ask, isWanted, this.#terms.hold))
  }

  /** The same, but the name does not stay closed afterwards: the next tick may be due sooner, and would find no replica. */
  lookBack(ask: () => Asked): Promise<TickOutcome> {
    const { holdAtLeastMs: _, ...hold } = this.#terms.hold
    return this.#track(this.#attempt(ask, () => true, hold))
  }

  #track(running: Promise<TickOutcome>): Promise<TickOutcome> {
    this.#running.add(running)
    return running.finally(() => this.#running.delete(running))
  }

  async #attempt(ask: () => Asked, isWanted: () => boolean, hold: Terms['hold']): Promise<TickOutcome> {
    let outcome: TickOutcome = 'left'
    let failures = 0
    const telling = this.#telling()
    while (!this.stopped.aborted) {
      try {
        const passed = await this.#pass(ask, hold, telling.begins)
        outcome = telling.ends(passed.outcome)
        if (!passed.more) return outcome
        failures = 0
      } catch (error) {
        if (this.stopped.aborted) break
        // Another replica runs it, or has just run it, or stands by already.
        if (isHoldfastError(error, 'ACQUIRE_TIMEOUT') || isHoldfastError(error, 'QUEUE_FULL'))
          return telling.ends(outcome)
        this.report(error, telling.tick)
        if (telling.tick !== null) telling.ends('error')
        if (isHoldfastError(error, 'CLOSED')) this.#refused.abort(error)
        else if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') && !isHoldfastError(error, 'LEASE_LOST'))
          return telling.ends('error')
        await this.#pause(growingPauseMs(failures++, PAUSES), this.stopped)
        if (!isWanted()) return telling.ends(outcome)
      }
    }
    return telling.ends('stopped')
  }

  /** Tells the end of each start of one attempt, or else its outcome once. */
  #telling() {
    const { clock, info } = this.#locker
    const about = { backend: info.name, namespace: info.namespace, name: this.#terms.name }
    let isTold = false
    let fromMs = clock.monotonicMs()
    let lateByMs = 0
    const telling = {
      tick: null as Tick | null,
      begins: (tick: Tick) => {
        telling.tick = tick
        fromMs = clock.monotonicMs()
        lateByMs = Math.max(0, clock.wallMs() - tick.scheduledAt.getTime())
      },
      ends: (outcome: TickOutcome): TickOutcome => {
        const tick = telling.tick?.id ?? null
        if (hasListeners('tick') && !(isTold && tick === null))
          emit('tick', { ...about, outcome, tick, lateByMs, tookMs: clock.monotonicMs() - fromMs })
        isTold = true
        telling.tick = null
        lateByMs = 0
        return outcome
      },
    }
    return telling
  }

  /** `withLease`, so that closing the locker waits for the job as well (T53, early releases). */
  #pass(ask: () => Asked, hold: Terms['hold'], begins: (tick: Tick) => void): Promise<Passed> {
    const { name, standsBy } = this.#terms
    const wait = standsBy ? { waitMs: Number.POSITIVE_INFINITY, maxWaiters: 1 } : { waitMs: 0 }
    return this.#locker.withLease(name, { ...hold, ...wait, signal: this.stopped }, async (lease) => {
      const record = parseRecord(name, lease.previousData)
      const asked = ask()
      const decision = decide(record, asked, this.#terms.rules)
      if (decision.kind === 'leave') {
        this.#checkClock(record)
        return { outcome: 'left', more: false }
      }
      if (decision.kind === 'set-aside') {
        await this.#setAside(lease, decision.record)
        return { outcome: 'set-aside', more: true }
      }
      const { tick, starts, more } = decision
      const { fence }: { readonly fence?: Fence } = lease
      const token = fence?.token.toString() ?? null
      const earlier = earlierRuns(record, asked, tick)
      const setAside = record?.setAside ?? []
      // Read after `ask`, so that a tick that it has found due is not taken for an overrun.
      const run = { since: this.#nowMs, until: null, earlier }
      begins(this.tickOf(tick, starts))
      return this.#start(lease, { tick, state: 'started', starts, token, ...run, setAside }, more)
    })
  }

  async #start(lease: Lease<F>, started: TickRecord, more: boolean): Promise<Passed> {
    // Before the job: if this is not known to be stored, the tick has not started.
    await lease.setData(formatRecord(started))
    // The answer may have come after the lease's time.
    if (lease.remainingMs === 0) throw lease.signal.reason
    const { starts } = started
    const { policy, maxStarts } = this.#terms.rules
    const isDone = await this.#run(lease, started)
    const until = this.#nowMs
    if (isDone) {
      await this.#settle(lease, { ...started, state: 'done', until })
      return { outcome: 'ran', more }
    }
    const isInterrupted = this.#stop.signal.aborted
    if (policy === 'rerun' && starts >= maxStarts && !isInterrupted) {
      await this.#setAside(lease, { ...started, until })
      return { outcome: 'set-aside', more }
    }
    // The starts of a job that throws are one run: what becomes due in the pause between them is an overrun.
    const pauseMs = policy === 'rerun' && !isInterrupted ? Math.ceil(this.#terms.rerunAfterMs) : 0
    await this.#settle(lease, {
      ...started,
      state: 'failed',
      starts: isInterrupted ? starts - 1 : starts,
      until: until + pauseMs,
    })
    if (policy === 'skip') return { outcome: 'failed', more }
    // Under the lease, so that no other replica starts it sooner.
    await this.#pause(this.#terms.rerunAfterMs, AbortSignal.any([this.stopped, lease.signal]))
    return { outcome: 'failed', more: true }
  }

  /** Whether the job returned. Its error is reported, but for the loss of the lease: that ends the pass, which reports it. */
  async #run(lease: Lease<F>, { tick: tickMs, starts }: TickRecord): Promise<boolean> {
    const tick = this.tickOf(tickMs, starts)
    const signal = AbortSignal.any([this.#stop.signal, lease.signal])
    try {
      await this.#job({ tick, lease, signal })
      return true
    } catch (error) {
      if (!isHoldfastError(error, 'LEASE_LOST') || error.leaseId !== lease.id) this.report(error, tick)
      return false
    }
  }

  async #setAside(lease: Lease<F>, record: TickRecord): Promise<void> {
    const { tick, starts } = record
    const setAside = [...record.setAside, tick]
    await this.#settle(lease, { ...record, state: 'set-aside', setAside })
    const told: SetAsideTick = { ...this.tickOf(tick, starts), starts }
    callSafely(() => this.#terms.onSetAside?.(told))
  }

  /** A tick that has ended must not start again because one write failed: as long as the lease is held, it is written again. */
  async #settle(lease: Lease<F>, record: TickRecord): Promise<void> {
    for (let failures = 0; ; failures++) {
      try {
        return await lease.setData(formatRecord(record))
      } catch (error) {
        if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') || this.#stop.signal.aborted) throw error
        this.report(error, null)
      }
      await this.#pause(growingPauseMs(failures, PAUSES), AbortSignal.any([this.#stop.signal, lease.signal]))
    }
  }

  #pause(ms: number, signal: AbortSignal): Promise<void> {
    return pause(this.#locker.clock, ms, { signal, keepsProcessAlive: true })
  }

  #checkClock(record: TickRecord | undefined): void {
    if (record === undefined) return
    // Nothing else starts until its end: a tick that is due before is an overrun.
    const closedUntilMs = Math.max(record.tick, record.until ?? 0)
    const aheadMs = closedUntilMs - this.#nowMs
    if (aheadMs < CREDIBLE_SKEW_MS) return
    const at = dateOf(closedUntilMs).toISOString()
    this.report(
      new Error(
        `The record of the schedule says that a tick was started for, or ended at, ${at}, which is in ${Math.round(aheadMs / 1_000)} s by the clock of this replica. ` +
          'Until then no tick starts. If the clock that wrote it was wrong, correct it, and call locker.forget(name).',
      ),
      null,
    )
  }

  tickOf(tickMs: number, start: number): Tick {
    const scheduledAt = dateOf(tickMs)
    return { schedule: this.#terms.name, id: scheduledAt.toISOString(), scheduledAt, start }
  }

  report(error: unknown, tick: Tick | null): void {
    callSafely(() => this.#terms.onError(error, tick))
  }

  /** Ends what is planned, aborts the signal of a job that runs, and waits for it. */
  async close(): Promise<void> {
    this.#untie()
    this.#stop.abort(new Error('the schedule was closed'))
    await Promise.all(this.#running)
  }
}
