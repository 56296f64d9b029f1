/**
 * The queue of an engine with ordered keys and watches, in which waiters serve themselves. One for each session.
 *
 *   join ──eligible──▶ confirm ──▶ granted                          [#enter]
 *   join ──something older conflicts──▶ watching                    [#wait]
 *   watching ──woken, or a keep-alive──▶ looking                    [#look]
 *   looking ──eligible──▶ confirm ──▶ granted                       [#promote]
 *   looking ──not eligible, or the look has failed──▶ watching
 *
 * 1. A wake-up proves nothing: a waiter in the middle may have cancelled (T92, predecessors that cancel). Only the conditional write of `confirm` grants,
 *    and the token is what this write returns.
 * 2. A lost wake-up costs one renewal interval: every keep-alive looks again (`check`). A look that hangs does not hold the keep-alive up.
 * 3. A grant counts from the session's last prolongation, never from an answer of the queue (T65, belief from the push).
 */

import { callWith, unlessAborted } from '../base/aborting.ts'
import { type Clock, elapsedMs, type Instant, type Timer } from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'
import { BackendUnavailableError, isHoldfastError } from '../base/errors.ts'
import type { Random } from '../base/ids.ts'
import { ignore } from '../base/ignore.ts'
import { settledWithin } from '../base/within.ts'
import type { AcquireRequest, AcquireResult, Call, Claim, EnqueueResult, Grant } from '../spi.ts'
import { cancelledCall, throwIfCancelled } from './backend-kit.ts'
import type { Lifetime } from './lifetime.ts'
import {
  isEligible,
  type JoinResult,
  type OrderedStore,
  type QueueEntry,
  type QueueStanding,
  type QueueView,
  waitersBefore,
  watchedBy,
} from './ordered-store.ts'
import { grantOf } from './session.ts'

export interface PredecessorQueueOptions {
  /** The backend's: waits end with it. */
  readonly lifetime: Lifetime
  readonly store: OrderedStore
  readonly clock: Clock
  readonly random: Random
  /** The session's last confirmed prolongation, and its granted TTL. */
  readonly session: () => { readonly since: Instant; readonly ttlMs: number }
}

/** A call that may be told that it has to wait. */
type QueuedCall = Call & { readonly queued?: () => void }
type Waiting = Extract<JoinResult, { kind: 'waiting' }>
type Ended = Extract<JoinResult, { kind: 'granted' | 'deleted' | 'session-gone' }>
type QueueAnswer = Exclude<EnqueueResult<'fenced'>, { kind: 'queue-full' }>

export class PredecessorQueue {
  readonly #options: PredecessorQueueOptions
  readonly #waits = new Set<Wait>()

  constructor(options: PredecessorQueueOptions) {
    this.#options = options
  }

  /** As `BackendSession.tryAcquire`. */
  async tryAcquire(request: AcquireRequest, call: Call): Promise<AcquireResult<'fenced'>> {
    // An attempt that waits already keeps its position.
    const entered = await this.#enter(request, false, ({ isNew }) => !isNew, call)
    if (entered.kind === 'waiting' || entered.kind === 'busy') return { kind: 'busy' }
    return this.#answer(request, entered)
  }

  /** As `BackendSession.enqueue`, with a promise. `waitMs` is left to core. */
  async enqueue(request: AcquireRequest, call: QueuedCall): Promise<EnqueueResult<'fenced'>> {
    const { maxWaiters = Number.POSITIVE_INFINITY } = request
    // Asked again it finds no more waiters before it than the first time.
    const mayStay = ({ queue }: Waiting) => waitersBefore(queue) < maxWaiters
    const entered = await this.#enter(request, maxWaiters > 0, mayStay, call)
    if (entered.kind === 'busy') return { kind: 'queue-full' }
    if (entered.kind !== 'waiting') return this.#answer(request, entered)
    call.queued?.()
    return this.#wait(request, entered.queue, call)
  }

  /**
   * Looks again for waiters of this process, and answers with those that are granted by now. Every keep-alive calls it with the
   * claims that it lists as waiting, after it has prolonged the session. A look that fails is not the keep-alive's failure, and one that
   * takes long does not keep it: its grant goes to the waiter later.
   */
  async check(claims: readonly Claim[], call: Call): Promise<Grant<'fenced'>[]> {
    const { clock, lifetime, session } = this.#options
    const listed = new Set(claims.map(({ attempt }) => attempt))
    // By attempt, because two calls may wait for one.
    const granted = new Map<string, Grant<'fenced'>>()
    const looks = [...this.#waits].filter(({ attempt }) => listed.has(attempt))
    const looked = looks.map(async (wait) => {
      const grant = await wait.look()
      if (grant !== null) granted.set(grant.attempt, grant)
    })
    const cancelled = () => cancelledCall(lifetime.backend, call.signal, 'unknown')
    // Half of the time that core gives a keep-alive. A look may hang on a frozen member (T96, connections that were left).
    const limitMs = Math.min(1_000, session().ttlMs / 6)
    const bounded = settledWithin(clock, limitMs, Promise.all(looked)).catch(ignore)
    await unlessAborted(bounded, call.signal, cancelled)
    return [...granted.values()]
  }

  /** The attempts that calls of this process wait for. */
  get attempts(): ReadonlySet<string> {
    return new Set([...this.#waits].map(({ attempt }) => attempt))
  }

  /** Ends all waits: the session has gone. */
  end(): void {
    for (const wait of this.#waits) wait.end({})
  }

  /** Joins, confirms if it is eligible, and leaves again if it may not stay. */
  async #enter(
    request: AcquireRequest,
    mayWait: boolean,
    mayStay: (waiting: Waiting) => boolean,
    call: Call,
  ): Promise<JoinResult | QueueStanding> {
    const { lifetime, store } = this.#options
    throwIfCancelled(lifetime.backend, call)
    const joined = await store.join(request, mayWait, call)
    if (joined.kind !== 'waiting') return joined
    try {
      const standing = await this.#promote(request, joined, call)
      if (standing.kind !== 'waiting' || mayStay({ ...joined, ...standing })) return standing
      await store.leave(request, call)
      return { kind: 'busy' }
    } catch (error) {
      throw this.#whileQueued(error)
    }
  }

  async #wait(request: AcquireRequest, joined: QueueView, call: Call): Promise<QueueAnswer> {
    const { lifetime, store } = this.#options
    const wait = new Wait(request.attempt)
    const untie = lifetime.onCut(call, (error) => wait.end({ error }))
    let hasFailed = false
    try {
      this.#waits.add(wait)
      this.#watch(wait, request, joined)
      for (;;) {
        const wake = await wait.next()
        if (wait.ended?.error !== undefined) throw wait.ended.error
        if (wait.ended !== undefined) return { kind: 'session-gone' }
        const standing = await this.#look(request, joined.own, wake, call).catch((error: unknown) => {
          // The waiter keeps its position until a keep-alive, which shows that the engine is back, and looks again.
          const isRefused = hasFailed && wake === 'keep-alive'
          if (isRefused || call.cancelled || !isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
            throw this.#whileQueued(error)
          return null
        })
        hasFailed = standing === null
        if (standing === null) continue
        if (standing.kind !== 'waiting') return wait.answered(this.#answer(request, standing))
        this.#watch(wait, request, standing.queue)
      }
    } catch (error) {
      // With a call of its own (T14, cleanup after cancelling). Core abandons the attempt as well, so nothing depends on it.
      if (call.cancelled) store.leave(request, callWith()).catch(ignore)
      throw error
    } finally {
      untie()
      this.#waits.delete(wait)
      wait.close()
    }
  }

  async #look(request: AcquireRequest, own: QueueEntry, wake: Wake, call: Call): Promise<QueueStanding> {
    const { store, clock, session } = this.#options
    const { since, ttlMs } = session()
    // After a pause the session may be over. It is not granted anything before a keep-alive has shown that it lives (T17, checks after waiting).
    if (elapsedMs(clock, since) >= ttlMs) return store.look(request, call)
    if (wake === 'changed' && store.comparesOrder && request.mode !== 'permits')
      return this.#promote(request, await store.confirm(request, own, null, call), call)
    return this.#promote(request, await store.look(request, call), call)
  }

  /** Confirms if it is eligible. After that it is not, unless the capacity was changed meanwhile. */
  async #promote(request: AcquireRequest, from: QueueStanding, call: Call): Promise<QueueStanding> {
    let standing = from
    while (standing.kind === 'waiting' && isEligible(standing.queue)) {
      const { queue } = standing
      standing = await this.#options.store.confirm(request, queue.own, queue, call)
    }
    return standing
  }

  #watch(wait: Wait, request: AcquireRequest, queue: QueueView): void {
    const { store, clock, random } = this.#options
    const keys = [{ key: queue.own.key, until: 'deleted' } as const, ...watchedBy(queue, request.mode)]
    const watched = keys.map(({ key, until }) => `${until} ${key}`).join('\n')
    wait.lookIn(queue.closedForMs, clock)
    if (wait.watched === watched) return
    wait.stopWatching()
    wait.watched = watched
    let timer: Timer | undefined
    const stop = store.watch(keys, queue.version, (wake) => {
      wait.watched = ''
      if (wake === 'changed') return wait.wake('changed')
      // All watches of a connection are lost at once. They must not all look at once, nor without end.
      const pauseMs = defaults.pollMs + random.fraction() * defaults.pollJitterMs
      timer = clock.setTimer(pauseMs, () => wait.wake('look'))
    })
    wait.stopWatching = () => {
      stop()
      timer?.cancel()
    }
  }

  /** The waiter's key is in the queue. That the next step was not applied does not change this. */
  #whileQueued(error: unknown): unknown {
    if (!isHoldfastError(error, 'BACKEND_UNAVAILABLE') || error.outcome === 'unknown') return error
    const { backend } = this.#options.lifetime
    return new BackendUnavailableError(backend, 'the queue did not answer a waiter', 'unknown', {
      cause: error,
    })
  }

  #answer(claim: Claim, standing: Ended): QueueAnswer {
    const { lifetime, session } = this.#options
    if (standing.kind === 'session-gone') return standing
    if (standing.kind === 'deleted')
      throw new BackendUnavailableError(lifetime.backend, 'its key was deleted from the queue', 'not-applied')
    const { token, previousData: data } = standing
    return { kind: 'granted', grant: grantOf(claim, { token, data }, session()) }
  }
}

/** Why it looks. `changed`: a watch has told of a change. */
type Wake = 'changed' | 'keep-alive' | 'look'

/** One pending `enqueue`. */
class Wait {
  readonly attempt: string
  /** The key that it watches. Empty after the watch has ended. */
  watched = ''
  stopWatching: () => void = () => {}
  /** With the error of a call that is cancelled, or whose backend is closed. Without one the session has gone. */
  ended: { readonly error?: unknown } | undefined
  /** The pause until a closed name may be free. */
  #reopening: Timer | undefined
  #pending: Wake | undefined
  #resume: (() => void) | undefined
  #grant: Grant<'fenced'> | null = null
  #lookers: ((grant: Grant<'fenced'> | null) => void)[] = []

  constructor(attempt: string) {
    this.attempt = attempt
  }

  wake(wake: Wake): void {
    this.#pending = wake
    this.#resume?.()
  }

  lookIn(ms: number | undefined, clock: Clock): void {
    this.#reopening?.cancel()
    this.#reopening = ms === undefined ? undefined : clock.setTimer(ms, () => this.wake('look'))
  }

  /** The next wake-up, also one that came during the last look. */
  async next(): Promise<Wake> {
    while (this.#pending === undefined) {
      this.#tellLookers()
      await new Promise<void>((resolve) => {
        this.#resume = resolve
      })
    }
    const wake = this.#pending
    this.#pending = undefined
    return wake
  }

  /** Resolves after a look that begins now or later, with the grant if there is one. */
  look(): Promise<Grant<'fenced'> | null> {
    return new Promise((resolve) => {
      this.#lookers.push(resolve)
      this.wake('keep-alive')
    })
  }

  answered(answer: QueueAnswer): QueueAnswer {
    if (answer.kind === 'granted') this.#grant = answer.grant
    return answer
  }

  end(outcome: { readonly error?: unknown }): void {
    this.ended = outcome
    this.wake('look')
  }

  close(): void {
    this.stopWatching()
    this.#reopening?.cancel()
    this.#tellLookers()
  }

  #tellLookers(): void {
    for (const tell of this.#lookers) tell(this.#grant)
    this.#lookers = []
  }
}
