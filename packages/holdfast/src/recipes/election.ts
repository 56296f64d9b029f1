/**
 * Leader election: one lease, and a leader for as long as it is held. `serve` runs the work under it, term after term.
 *
 *   campaigning ──granted───────────────▶ leading       [#lead]
 *   leading ─────stop, resign, loss─────▶ winding down  the term's signal aborts; `withLease` still keeps the lease if it can
 *   winding down | leading ─work ended──▶ released      only now (T53, early releases); then a pause if the term was short, and campaigning
 *
 * Failures, and what answers them:
 * - The leader is paused, its lease expires, a second one leads: the term's signal aborts by the leader's own clock (G3), or when
 *   the process goes on. What it sends before it looks at the signal is refused by the guard, which knows the newer fence.
 * - The engine is away: `withLease` waits with a growing pause. A term that ends soon after it began is followed by a pause
 *   (T87, hot retries after an outage), so that no failure becomes a hot loop.
 * - The work goes on after its lease was lost: `serve` waits for it before it campaigns again, and `checkHealth` throws.
 * - A value of an earlier leader is still in the data cell: it carries the id of the lease that proclaimed it.
 */

import { onAborted } from '../base/aborting.ts'
import { elapsedMs, type Instant, instantOf, pause } from '../base/clock.ts'
import { InvalidArgumentError, isHoldfastError, LeaseLostError, refusedLeaseId } from '../base/errors.ts'
import { checkName } from '../base/names.ts'
import { checkCallback, checkFunction, checkKnownOptions, checkNumber, checkSignal } from '../base/options.ts'
import { growingPauseMs } from '../base/pauses.ts'
import type {
  AcquireOptions,
  CallOptions,
  Fencing,
  HoldOptions,
  Lease,
  Locker,
  ReleaseOutcome,
  WaitOptions,
} from '../base/types.ts'
import { currentLeader, type Leader, observeLeaders, proclaim } from './election/leader.ts'
import { type EndOfLeadership, tellLeadership } from './election/telling.ts'
import { checkNeeds, checkTtl, fencingUnless } from './needs.ts'

export type { Leader } from './election/leader.ts'

export interface ElectionOptions extends Pick<HoldOptions, 'ttlMs' | 'note' | 'owner' | 'lockDelayMs'> {
  /** Needed on a backend without fencing tokens: there nothing can refuse the writes of a leader that was paused. */
  readonly allowUnfenced?: boolean
}

export interface CampaignOptions extends Pick<HoldOptions, 'signal' | 'onJeopardy'>, WaitOptions {
  /** How long to campaign. Default `Infinity`. */
  readonly waitMs?: number
}

export interface ServeOptions extends Pick<HoldOptions, 'onJeopardy'> {
  /** Ends `serve`: the campaign is cancelled, or the term's signal aborts and the end of the work is awaited. Then it resolves. */
  readonly signal?: AbortSignal
}

/** Leadership, as `campaign` returns it. Stop the work, then resign. */
export interface Leadership<F extends Fencing = Fencing> extends AsyncDisposable {
  /** The lease of the term. Its fence is the proof for a guard. */
  readonly lease: Lease<F>
  /** Aborts when the lease is lost. */
  readonly signal: AbortSignal
  /** Stores a value, as JSON, that `leader` and `observe` show while this lease is held. Up to 4 KiB. */
  proclaim(value: unknown, options?: CallOptions): Promise<void>
  resign(): Promise<ReleaseOutcome>
}

/** The term that the work of `serve` is given. Leadership lasts until the work has ended, or the lease is lost. */
export interface Term<F extends Fencing = Fencing> extends Pick<Leadership<F>, 'lease' | 'proclaim'> {
  /** Aborts when the lease is lost, at `resign`, and when `serve` is to stop. The work ends then, as soon as it can. */
  readonly signal: AbortSignal
  /** Aborts `signal`. Leadership is given up when the work has ended; to return from the work does the same. */
  resign(): void
}

export type Work<F extends Fencing = Fencing> = (term: Term<F>) => Promise<void> | void

export interface Election<F extends Fencing = Fencing> {
  readonly name: string
  /** Waits in the queue until this client leads. */
  campaign(options?: CampaignOptions): Promise<Leadership<F>>
  /**
   * Campaigns, runs `work`, waits for its end, gives leadership up, and campaigns again, until the signal aborts. If the work
   * throws, leadership is given up and `serve` rejects with that error, unless the error only says that the term is over: the
   * reason of the term's signal, an `AbortError` after it, or a refusal of the term's own lease or fence.
   */
  serve(work: Work<F>, options?: ServeOptions): Promise<void>
  leader(options?: CallOptions): Promise<Leader<F> | null>
  /** The current leader, or null, and then every change. It may be over by the time you read it. */
  observe(options?: CallOptions): AsyncIterable<Leader<F> | null>
  /** Throws `LEASE_LOST` when the work of `serve` still runs although its lease was lost more than `graceMs` ago. */
  checkHealth(options: { readonly graceMs: number }): void
}

/** Every process that calls it with the same name, on the same engine and namespace, is a candidate. */
export function election(
  locker: Locker<'fenced'>,
  name: string,
  options?: ElectionOptions,
): Election<'fenced'>
export function election<F extends Fencing>(
  locker: Locker<F>,
  name: string,
  options: ElectionOptions & { readonly allowUnfenced: true },
): Election<F>
export function election<F extends Fencing>(
  locker: Locker<F>,
  name: string,
  options: ElectionOptions = {},
): Election<F> {
  checkKnownOptions('options', options, ['ttlMs', 'note', 'owner', 'lockDelayMs', 'allowUnfenced'])
  const { allowUnfenced, ...hold } = options
  checkNeeds('An election', locker, ['data', ...fencingUnless(allowUnfenced)])
  checkName(name)
  checkTtl(locker, hold.ttlMs)
  return new LockerElection(locker, name, hold)
}

/** A shorter term is followed by a pause, which doubles with each short term in a row. */
const SHORT_TERM_MS = 1_000
const FIRST_PAUSE_MS = 25
/** Short, because nothing tells a pause that the locker was closed. */
const LONGEST_PAUSE_MS = 500
const PAUSES = { firstMs: FIRST_PAUSE_MS, longestMs: LONGEST_PAUSE_MS }

interface RunningTerm<F extends Fencing> {
  readonly lease: Lease<F>
  lostAt?: Instant
}

class LockerElection<F extends Fencing> implements Election<F> {
  readonly name: string
  readonly #locker: Locker<F>
  readonly #hold: AcquireOptions
  #isServing = false
  #running: RunningTerm<F> | undefined

  constructor(locker: Locker<F>, name: string, hold: HoldOptions) {
    this.name = name
    this.#locker = locker
    // A leader holds for as long as it lives, so a long hold is no reason to warn.
    this.#hold = { waitMs: Number.POSITIVE_INFINITY, warnHoldMs: Number.POSITIVE_INFINITY, ...hold }
  }

  async campaign(options: CampaignOptions = {}): Promise<Leadership<F>> {
    checkKnownOptions('options', options, ['waitMs', 'maxWaiters', 'signal', 'onJeopardy'])
    const { waitMs = Number.POSITIVE_INFINITY } = options
    const lease = await this.#locker.acquire(this.name, { ...this.#hold, ...options, waitMs })
    const tellEnd = tellLeadership(this.#locker, lease)
    onAborted(lease.signal, ({ reason }) => tellEnd((reason as LeaseLostError).reason))
    const resign = () => {
      tellEnd('resigned')
      return lease.release()
    }
    return {
      lease,
      get signal() {
        return lease.signal
      },
      proclaim: (value, options) => proclaim(lease, value, options),
      resign,
      [Symbol.asyncDispose]: async () => void (await resign()),
    }
  }

  async serve(work: Work<F>, options: ServeOptions = {}): Promise<void> {
    checkFunction('work', work)
    checkKnownOptions('options', options, ['signal', 'onJeopardy'])
    checkSignal(options.signal)
    checkCallback('onJeopardy', options.onJeopardy)
    // Otherwise one of them could lead while the other still winds down.
    if (this.#isServing)
      throw new InvalidArgumentError('serve', 'runs already on this election; one at a time.')
    this.#isServing = true
    try {
      await this.#serve(work, options)
    } finally {
      this.#isServing = false
    }
  }

  async #serve(work: Work<F>, options: ServeOptions): Promise<void> {
    const { clock } = this.#locker
    const { signal } = options
    let shortTerms = 0
    while (!signal?.aborted) {
      const lastedMs = await this.#lead(work, options)
      if (lastedMs >= SHORT_TERM_MS) shortTerms = 0
      else {
        // An abort ends the pause, and then the loop.
        await pause(clock, growingPauseMs(shortTerms++, PAUSES), { signal, keepsProcessAlive: true })
      }
    }
  }

  /** One campaign and one term. Returns how long the term lasted. */
  async #lead(work: Work<F>, options: ServeOptions): Promise<number> {
    const { clock } = this.#locker
    const { signal } = options
    let lastedMs = 0
    const failures: unknown[] = []
    try {
      // The lease is released when the body has ended, and a closing locker waits for the body.
      await this.#locker.withLease(this.name, { ...this.#hold, ...options }, async (lease) => {
        const fromMs = clock.monotonicMs()
        await this.#runTerm(lease, work, signal).catch((error) => failures.push(error))
        lastedMs = clock.monotonicMs() - fromMs
      })
    } catch (error) {
      // A loss is not a failure: the next campaign follows. Neither is a campaign that was cancelled.
      const isCancelled = signal?.aborted && error === signal.reason
      if (!isCancelled && !isHoldfastError(error, 'LEASE_LOST')) throw error
    }
    if (failures.length > 0) throw failures[0]
    return lastedMs
  }

  /** Rejects with what the work threw, unless that only says that the term is over. */
  async #runTerm(lease: Lease<F>, work: Work<F>, stop: AbortSignal | undefined): Promise<void> {
    const { clock } = this.#locker
    const running: RunningTerm<F> = { lease }
    this.#running = running
    const ending = new AbortController()
    const tellEnd = tellLeadership(this.#locker, lease)
    let end: EndOfLeadership = 'work-ended'
    const untieLoss = onAborted(lease.signal, () => {
      running.lostAt = instantOf(clock)
      ending.abort(lease.signal.reason)
    })
    const untieStop = onAborted(stop, ({ reason }) => ending.abort(reason))
    const term: Term<F> = {
      lease,
      get signal() {
        // Asked after the event loop was blocked, the lease judges itself before its timer can (T8, blocked event loops).
        void lease.state
        return ending.signal
      },
      proclaim: (value, options) => proclaim(lease, value, options),
      resign: () => ending.abort(new DOMException('The leader has resigned.', 'AbortError')),
    }
    try {
      if (!term.signal.aborted) await work(term)
    } catch (error) {
      if (!saysThatItIsOver(error, lease, term.signal)) {
        end = 'work-failed'
        throw error
      }
    } finally {
      if (lease.state === 'lost') end = (lease.signal.reason as LeaseLostError).reason
      else if (end === 'work-ended' && ending.signal.aborted) end = stop?.aborted ? 'stopped' : 'resigned'
      tellEnd(end)
      untieLoss()
      untieStop()
      this.#running = undefined
    }
  }

  async leader(options?: CallOptions): Promise<Leader<F> | null> {
    return currentLeader(this.#locker, this.name, options)
  }

  observe(options: CallOptions = {}): AsyncIterable<Leader<F> | null> {
    checkKnownOptions('options', options, ['signal'])
    const signal = checkSignal(options.signal)
    return { [Symbol.asyncIterator]: () => observeLeaders(this.#locker, this.name, signal) }
  }

  checkHealth(options: { readonly graceMs: number }): void {
    checkKnownOptions('options', options, ['graceMs'])
    const graceMs = checkNumber('graceMs', options?.graceMs, { min: 0 })
    // Reading `state` asks the clock, so the loss may be noticed only here.
    if (this.#running?.lease.state !== 'lost') return
    const { lease, lostAt } = this.#running
    const lostForMs = lostAt === undefined ? 0 : elapsedMs(this.#locker.clock, lostAt)
    if (lostForMs <= graceMs) return
    const error = lease.signal.reason as LeaseLostError
    const advice = `That was ${Math.round(lostForMs)} ms ago, and its work still runs: end this process, and let the work follow its signal.`
    throw new LeaseLostError(this.name, error.reason, {
      cause: error,
      leaseId: lease.id,
      ttlMs: error.ttlMs,
      advice,
    })
  }
}

/** Whether the work only says that it was told to end, or that its own lease or fence was refused. */
function saysThatItIsOver(error: unknown, lease: Lease, signal: AbortSignal): boolean {
  if (refusedLeaseId(error) === lease.id) return true
  if (!signal.aborted) return false
  if (error === signal.reason) return true
  return error instanceof Error && (error.name === 'AbortError' || error.cause === signal.reason)
}
