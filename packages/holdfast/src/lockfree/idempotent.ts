/**
 * Work that is done once for a key, however often it is asked for. The work itself is in `claimed-work.ts`.
 *
 *   (no row) ──claim──▶ working ──settle──▶ done | failed ──keepMs──▶ (no row)
 *                       working ──its time is over: claim by another attempt, with a higher token──▶ working
 *                       working ──the work threw, and errors are not stored──▶ working, with its time over
 *                       working ──given back before any work was begun──▶ (no row)
 *
 * Failures before the work begins:
 *   the answer to the claim is lost, or comes when the claim's time is over: the same attempt claims again.
 *   another caller has the claim: this one looks again until there is an outcome or its time is over (`waitMs`).
 *   a look hangs: the caller is told at `waitMs`, and what the look claims later is given back. Calls for one key look one
 *     after the other, so that looks that hang do not use up the connections of all the others (T21, used-up connections).
 */

import { type Clock, elapsedMs, type Instant, instantOf, systemClock } from '../base/clock.ts'
import { defaultDriftMs, defaults, limits } from '../base/defaults.ts'
import {
  AcquireTimeoutError,
  InvalidArgumentError,
  isHoldfastError,
  KeyReusedError,
  outcomeOf,
  StoredFailureError,
} from '../base/errors.ts'
import { emit, type HoldfastEvents, hasListeners } from '../base/events.ts'
import type { Fence } from '../base/fence.ts'
import { newAttempt, type Random, systemRandom } from '../base/ids.ts'
import { ignore } from '../base/ignore.ts'
import { checkName, checkText } from '../base/names.ts'
import { checkCallback, checkFunction, checkKnownOptions, checkNumber, checkSignal } from '../base/options.ts'
import { growingPauseMs } from '../base/pauses.ts'
import { SerialQueue } from '../base/serial-queue.ts'
import { ClaimedWork, type Terms } from './claimed-work.ts'
import type { ClaimAnswer, KeyStore } from './key-store.ts'
import { OutOfPatience, Patience } from './patience.ts'
import { fromJson, payloadDigest, resourceName } from './payload.ts'

export interface IdempotentRequest {
  /** The kind of work: keys of different scopes have nothing to do with each other. */
  readonly scope: string
  /** Which piece of work. Take it from the client's request, so that a repeated request has the same. */
  readonly key: string
  /**
   * The request that the work depends on, as JSON or bytes. Another one with the same key is refused with `KEY_REUSED`. What JSON would
   * turn into something else is refused with `INVALID_ARGUMENT`, also `undefined` in a list, which JSON would turn into
   * `null`; a member of an object that is `undefined` counts as one that is not there.
   */
  readonly payload?: unknown
}

export interface IdempotentOptions {
  /** How long a claim outlives its last renewal: after a crash, no other caller takes over before. 15,000, the default: 15 s after it. */
  readonly ttlMs?: number
  /**
   * How long to wait for the work of another caller, and for a database that does not answer. Default 30 s; `Infinity`
   * is allowed, 0 looks once.
   */
  readonly waitMs?: number
  /** For how long the outcome is kept. 86,400,000, the default, is a day: the work is done again for a retry after that. */
  readonly keepMs?: number
  /**
   * Which errors of the work are an answer that later callers get too (as `StoredFailureError`): what it returns is
   * stored; undefined for an error after which the work may be tried again. Default: none is stored. If it throws, or returns
   * what JSON cannot express, the call rejects with `InvalidArgumentError`, and the error's message is stored.
   */
  readonly storeError?: (error: unknown) => unknown
  /** Ends the wait, and is part of the work's signal. */
  readonly signal?: AbortSignal
}

/** The context that the work gets. */
export interface IdempotentContext<Tx> {
  /** A proof for guards: a caller that takes over has a higher token. */
  readonly fence: Fence
  /** Aborts when the claim is lost, or when the caller's own signal does. */
  readonly signal: AbortSignal
  /**
   * Another caller may have begun this work before: it has thrown, died or was overtaken, and there is no outcome. Find out
   * what it has done outside of this database. It stays so for all callers until there is an outcome, or there was no call
   * for `keepMs`.
   */
  readonly isTakeover: boolean
  /**
   * Stores the result in a transaction of yours, so that the work in it and its result are one step. If it is committed
   * it is the result of the call, whatever the work returns; if it is not, the call has none. Commit before the work
   * returns.
   *
   * @throws LeaseLostError         another caller has taken over, or the work has ended; roll back
   * @throws InvalidArgumentError   another result was committed before, and stays; roll back
   */
  store(tx: Tx, result: unknown): Promise<void>
}

export interface Idempotent<Tx> extends AsyncDisposable {
  /**
   * Does the work unless it has been done for this key; then the stored result is returned. Every caller gets the result
   * as JSON brings it back, whatever `T` says: a `Date` is a string then.
   *
   * @throws KeyReusedError        the key was used with another payload
   * @throws StoredFailureError    the work has failed before, and its failure was stored
   * @throws AcquireTimeoutError   another caller was still at it after `waitMs`, or the database had not answered
   * @throws LeaseLostError        another caller has taken over: this call's outcome does not count
   * @throws NotCommittedError     the work called `store`, and no transaction with its result was committed
   */
  <T>(
    request: IdempotentRequest,
    work: (context: IdempotentContext<Tx>) => Promise<T> | T,
    options?: IdempotentOptions,
  ): Promise<T>
  /** Removes what has expired; how many. It is done by itself now and then, too. */
  prune(): Promise<number>
  close(): Promise<void>
}

export interface Surroundings {
  readonly clock?: Clock
  readonly random?: Random
}

export function createIdempotent<Tx>(store: KeyStore<Tx>, surroundings: Surroundings = {}): Idempotent<Tx> {
  const { clock = systemClock, random = systemRandom } = surroundings
  const calls = new IdempotentCalls(store, clock, random)
  const close = () => store.close()
  return Object.assign(calls.call.bind(calls) as Idempotent<Tx>, {
    prune: () => store.prune(),
    close,
    [Symbol.asyncDispose]: close,
  })
}

const PAUSES = { firstMs: 10, longestMs: defaults.pollMs }
const PRUNING_INTERVAL_MS = 600_000

interface Checked extends Terms {
  readonly scope: string
  readonly key: string
  readonly payload: string | null
  readonly waitMs: number
}

/** The claim, or the outcome that was stored before. */
type Found =
  | {
      readonly kind: 'claimed'
      readonly token: bigint
      readonly isTakeover: boolean
      readonly since: Instant
    }
  | { readonly kind: 'done' | 'failed'; readonly body: string }

class IdempotentCalls<Tx> {
  readonly #store: KeyStore<Tx>
  readonly #clock: Clock
  readonly #random: Random
  /** Looks at the store, with a queue for each key. */
  readonly #looks = new SerialQueue()
  #prunedMs = Number.NEGATIVE_INFINITY

  constructor(store: KeyStore<Tx>, clock: Clock, random: Random) {
    this.#store = store
    this.#clock = clock
    this.#random = random
  }

  async call<T>(
    request: IdempotentRequest,
    work: (context: IdempotentContext<Tx>) => Promise<T> | T,
    options: IdempotentOptions = {},
  ): Promise<T> {
    const checked = check(request, work, options)
    const { scope, key, waitMs, signal } = checked
    signal?.throwIfAborted()
    const attempt = newAttempt(this.#random)
    const patience = new Patience(this.#clock, waitMs, signal)
    const tell = this.#telling(scope)
    let found: Found
    try {
      await this.#pruneIfDue(patience)
      signal?.throwIfAborted()
      found = await this.#find(checked, attempt, patience)
    } catch (error) {
      const isLate = isHoldfastError(error, 'ACQUIRE_TIMEOUT')
      tell(isLate ? 'timed-out' : isHoldfastError(error, 'KEY_REUSED') ? 'key-reused' : 'failed')
      throw error
    } finally {
      patience.end()
    }
    if ('body' in found) {
      tell('replayed')
      if (found.kind === 'done') return fromJson(found.body) as T
      throw new StoredFailureError(scope, key, fromJson(found.body))
    }
    const claimed = { scope, key, attempt }
    const claimedWork = new ClaimedWork(this.#store, this.#clock, this.#random, checked, claimed)
    try {
      const issuer = await this.#store.issuer().catch((error: unknown) => {
        this.#giveBack(checked, attempt)
        throw error
      })
      const result = await claimedWork.perform(work, found, issuer)
      tell('done')
      return result
    } catch (error) {
      // The work may have lost a lease of its own.
      const isOurs = isHoldfastError(error, 'LEASE_LOST') && error.resource === resourceName(scope, key)
      tell(isOurs ? 'taken-over' : 'failed')
      throw error
    }
  }

  #telling(name: string): (outcome: HoldfastEvents['idempotent']['outcome']) => void {
    const startMs = this.#clock.monotonicMs()
    return (outcome) => {
      if (hasListeners('idempotent'))
        emit('idempotent', { name, outcome, tookMs: this.#clock.monotonicMs() - startMs })
    }
  }

  async #find(checked: Checked, attempt: string, patience: Patience): Promise<Found> {
    const { scope, key, ttlMs } = checked
    let last: NoOutcome = { kind: 'blocked' }
    let lateClaims = 0
    for (let tries = 0; ; tries++) {
      const { answer, since } = await this.#look(checked, attempt, patience)
      if ('body' in answer) return answer
      if (answer.kind === 'reused') throw new KeyReusedError(scope, key)
      // A look that was cut short does not change what the one before has seen.
      if (answer.kind === 'cut-short') throw giveUp(checked, patience, last)
      if (answer.kind === 'claimed') {
        if (elapsedMs(this.#clock, since) < ttlMs - defaultDriftMs(ttlMs)) return { ...answer, since }
        // The answer was so long in coming that another caller may have the work by now.
        if (++lateClaims === 1 || !patience.isOver) continue
        this.#giveBack(checked, attempt)
        throw giveUp(checked, patience, last)
      }
      last = answer
      if (!patience.isOver)
        await patience.pause(growingPauseMs(tries, PAUSES) * (0.5 + this.#random.fraction()))
      if (patience.isOver) throw giveUp(checked, patience, last)
    }
  }

  async #look(
    checked: Checked,
    attempt: string,
    patience: Patience,
  ): Promise<{ readonly answer: LookAnswer; readonly since: Instant }> {
    const { scope, key, payload, ttlMs, keepMs, signal } = checked
    let since = instantOf(this.#clock)
    const claim = () => {
      since = instantOf(this.#clock)
      return this.#store.claim({ scope, key, payload, attempt, ttlMs, keepMs })
    }
    const looking = this.#looks.run(claim, { keys: [resourceName(scope, key)], signal: patience.signal })
    try {
      return { answer: await patience.limit(looking), since }
    } catch (error) {
      if (signal?.aborted || error instanceof OutOfPatience) {
        const giveBack = ({ kind }: ClaimAnswer) => {
          if (kind === 'claimed') this.#giveBack(checked, attempt)
        }
        looking.then(giveBack).catch(ignore)
        if (signal?.aborted) throw signal.reason
        return { answer: { kind: 'cut-short' }, since }
      }
      // If it was applied, the next claim of the same attempt finds it.
      const isOpen = outcomeOf(error) === 'unknown' || isHoldfastError(error, 'CONFLICT')
      if (isOpen) return { answer: { kind: 'unanswered', error }, since }
      throw error
    }
  }

  /** Gives the claim back in the background: one that could not be given back ends with its time. */
  #giveBack({ scope, key, keepMs }: Checked, attempt: string): void {
    this.#store.abandon({ scope, key, attempt }, { begun: false, keepMs }).catch(ignore)
  }

  async #pruneIfDue(patience: Patience): Promise<void> {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#prunedMs < PRUNING_INTERVAL_MS) return
    this.#prunedMs = nowMs
    // A failed removal does not count: the keys are removed another time.
    await patience.limit(this.#store.prune()).catch(() => 0)
  }
}

/** The outcome of the claim is not known yet. */
interface Unanswered {
  readonly kind: 'unanswered'
  readonly error: unknown
}

type LookAnswer = ClaimAnswer | Unanswered | { readonly kind: 'cut-short' }

type NoOutcome = { readonly kind: 'busy' | 'blocked' } | Unanswered

/** The error when the time is over. */
function giveUp({ scope, key }: Checked, { waitedMs }: Patience, last: NoOutcome): unknown {
  if (last.kind === 'unanswered') return last.error
  const advice =
    last.kind === 'busy'
      ? 'Another caller is still at this work: ask again later, or raise waitMs.'
      : 'The database had not answered whether another caller is at this work: another transaction keeps the key locked, or ' +
        'the database hangs. This call has not begun the work: ask again later, or raise waitMs.'
  return new AcquireTimeoutError(resourceName(scope, key), waitedMs, advice, {
    isBlocked: last.kind === 'blocked',
  })
}

function check(request: IdempotentRequest, work: unknown, options: IdempotentOptions): Checked {
  if (request === undefined) throw new InvalidArgumentError('request', 'must be given: { scope, key }.')
  checkKnownOptions('request', request, ['scope', 'key', 'payload'])
  checkKnownOptions('options', options, ['ttlMs', 'waitMs', 'keepMs', 'storeError', 'signal'])
  checkFunction('work', work)
  const storeError = checkCallback('storeError', options.storeError)
  return {
    scope: checkName(checkText('scope', request.scope, limits.namespaceBytes), 'scope'),
    key: checkText('key', request.key, limits.nameBytes),
    payload: payloadDigest(request.payload),
    ...checkTimes(options),
    storeError,
    signal: checkSignal(options.signal),
  }
}

type Times = Pick<Checked, 'ttlMs' | 'waitMs' | 'keepMs'>

export function checkTimes(options: Partial<Times>): Times {
  const { ttlMs = defaults.ttlMs, waitMs = defaults.waitMs, keepMs = defaults.idempotentKeepMs } = options
  return {
    ttlMs: checkNumber('ttlMs', ttlMs, { min: 50, max: 86_400_000 }),
    waitMs: checkNumber('waitMs', waitMs, { min: 0, infinityAllowed: true }),
    keepMs: checkNumber('keepMs', keepMs, { min: 1, max: 1e13 }),
  }
}
