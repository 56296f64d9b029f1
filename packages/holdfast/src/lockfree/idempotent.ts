/**
 * Work that is done once for a key, however often it is asked for.
 *
 *   (no row) ──claim──▶ working ──settle──▶ done | failed ──keepMs──▶ (no row)
 *                       working ──its time is over: claim by another attempt, with a higher token──▶ working
 *                       working ──the work threw, and errors are not stored──▶ working, with its time over
 *                       working ──given back before any work was begun──▶ (no row)
 *
 * What may go wrong between its steps: claim · work (renewed meanwhile) · settle
 *   the answer to the claim is lost: the same attempt asks again, and gets its own claim.
 *   the answer to the claim comes when its time is over already: the same attempt claims again before it begins.
 *   a crash after the claim: when its time is over, the next caller takes over. It is told so (`isTakeover`), because
 *     what the work does outside of this database may have been done or not. So is everybody after it until there is an
 *     outcome, and who comes after work that threw: it may have done a part.
 *   a pause past the end of the claim: somebody takes over. The paused one is told by `signal` when it wakes, every guard
 *     that its successor has been at refuses its fence, and its outcome is not stored (LEASE_LOST).
 *   a crash after the work and before the settling: the work is done again by whoever takes over. For work within this
 *     database there is no such moment: `store(tx, result)` settles in the transaction that does the work.
 *   the answer to the settling is lost: it is settled again; that is the same outcome, by the same attempt.
 *   the settling hangs: the caller hears after a while that the outcome is unknown. It goes on behind.
 *   the work throws after it has stored its result and committed: the result stays.
 *   the work returns although the transaction of `store` was rolled back, or is still open: the result is read back from
 *     the store, after the end of that transaction and of every call of `store`. Without one the call ends with
 *     NOT_COMMITTED, and the claim is given back. An outcome is never replaced, and `store` is refused once the work has
 *     ended.
 *   a second caller meanwhile: it waits, and looks again and again until there is an outcome or its patience is over.
 *   a look that hangs, behind a transaction that has the key's row or because the database does not answer: the caller is
 *     told when its patience is over. What the look claims after that is given back. Callers for one key look one after
 *     the other, so that those who hang do not use up the connections of all the others.
 *   another payload: refused, as long as the key is remembered.
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
import type { Fence } from '../base/fence.ts'
import { newAttempt, type Random, systemRandom } from '../base/ids.ts'
import { checkName, checkText } from '../base/names.ts'
import { checkKnownOptions, checkNumber, checkSignal } from '../base/options.ts'
import { ClaimedWork, type Terms } from './claimed-work.ts'
import type { ClaimAnswer, Claimed, KeyStore } from './key-store.ts'
import { Looks } from './looks.ts'
import { OutOfPatience, Patience } from './patience.ts'
import { fromJson, payloadDigest, resourceName } from './payload.ts'

export interface IdempotentRequest {
  /** What kind of work it is: keys of different scopes have nothing to do with each other. */
  readonly scope: string
  /** Which piece of work. Take it from the client's request, so that a repeated request has the same. */
  readonly key: string
  /**
   * What the work depends on, as JSON or bytes. Another one with the same key is refused with `KEY_REUSED`. What JSON would
   * turn into something else is refused with `INVALID_ARGUMENT`, also `undefined` in a list, which JSON would turn into
   * `null`; a member of an object that is `undefined` counts as one that is not there.
   */
  readonly payload?: unknown
}

export interface IdempotentOptions {
  /** How long a claim outlives its last renewal: after a crash, nobody takes over before. Default 15 s. */
  readonly ttlMs?: number
  /**
   * For how long somebody else's work is waited for, and a database that does not answer. Default 30 s; `Infinity` is
   * allowed, 0 looks once.
   */
  readonly waitMs?: number
  /** For how long the outcome is kept. Default a day. */
  readonly keepMs?: number
  /**
   * Which errors of the work are an answer that later callers get too (as `StoredFailureError`): what it returns is
   * stored; undefined for an error after which the work may be tried again. Default: none is stored.
   */
  readonly storeError?: (error: unknown) => unknown
  /** Ends the wait, and is part of the work's signal. */
  readonly signal?: AbortSignal
}

/** What the work gets. */
export interface IdempotentContext<Tx> {
  /** A proof for guards: whoever takes over has a higher token. */
  readonly fence: Fence
  /** Aborts when the claim is lost, or when the caller's own signal does. */
  readonly signal: AbortSignal
  /**
   * Somebody may have begun this work before: it has thrown, died or was overtaken, and there is no outcome. Find out what
   * it has done outside of this database. It stays so for everybody until there is an outcome, or nobody has asked for
   * `keepMs`.
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
   * Does the work unless it has been done for this key; then the stored result is returned. Everybody gets the result
   * as JSON brings it back, whatever `T` says: a `Date` is a string then.
   *
   * @throws KeyReusedError        the key was used with another payload
   * @throws StoredFailureError    the work has failed before, and its failure was stored
   * @throws AcquireTimeoutError   somebody else was still at it after `waitMs`, or the database had not answered
   * @throws LeaseLostError        somebody has taken over: this call's outcome does not count
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
  const desk = new Desk(store, clock, random)
  const close = () => store.close()
  return Object.assign(desk.call.bind(desk) as Idempotent<Tx>, {
    prune: () => store.prune(),
    close,
    [Symbol.asyncDispose]: close,
  })
}

const FIRST_PAUSE_MS = 10
const PRUNING_INTERVAL_MS = 600_000

interface Checked extends Terms {
  readonly scope: string
  readonly key: string
  readonly payload: string | null
  readonly waitMs: number
}

class Desk<Tx> {
  readonly #store: KeyStore<Tx>
  readonly #clock: Clock
  readonly #random: Random
  readonly #looks = new Looks()
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
    checked.signal?.throwIfAborted()
    const patience = new Patience(this.#clock, checked.waitMs, checked.signal)
    await this.#pruneIfDue(patience)
    checked.signal?.throwIfAborted()
    const attempt = newAttempt(this.#random)
    let last: NoOutcome = { kind: 'blocked' }
    let lateClaims = 0
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, defaults.pollMs)) {
      const { answer, since } = await this.#claim(checked, attempt, patience)
      switch (answer.kind) {
        case 'done':
          return fromJson(answer.body) as T
        case 'failed':
          throw new StoredFailureError(checked.scope, checked.key, fromJson(answer.body))
        case 'reused':
          throw new KeyReusedError(checked.scope, checked.key)
        case 'claimed': {
          const claimed = { scope: checked.scope, key: checked.key, attempt }
          const issuer = await this.#store.issuer()
          if (!this.#isOver(since, checked)) {
            const performance = new ClaimedWork(this.#store, this.#clock, this.#random, checked, claimed)
            return performance.perform(work, answer, issuer, since)
          }
          // It was so long in coming that somebody else may have the work by now.
          if (++lateClaims === 1 || !patience.isOver) continue
          this.#giveBack(claimed, checked)
          throw giveUp(checked, patience, last)
        }
      }
      // A look that was cut short does not change what the one before has seen.
      if (answer.kind !== 'cut-short') last = answer
      else throw giveUp(checked, patience, last)
      if (!patience.isOver) await patience.pause(pauseMs * (0.5 + this.#random.fraction()))
      if (patience.isOver) throw giveUp(checked, patience, last)
    }
  }

  async #claim(
    checked: Checked,
    attempt: string,
    patience: Patience,
  ): Promise<{ readonly answer: LookAnswer; readonly since: Instant }> {
    const { scope, key, payload, ttlMs, keepMs, signal } = checked
    let since = instantOf(this.#clock)
    const look = this.#looks.take(resourceName(scope, key), () => {
      since = instantOf(this.#clock)
      return this.#store.claim({ scope, key, payload, attempt, ttlMs, keepMs })
    })
    try {
      return { answer: await patience.limit(look.answer), since }
    } catch (error) {
      if (signal?.aborted || error instanceof OutOfPatience) {
        look.leave()
        // It may be waiting behind another's transaction. What it claims when it gets there is given back.
        const giveBack = ({ kind }: ClaimAnswer) => {
          if (kind === 'claimed') this.#giveBack({ scope, key, attempt }, checked)
        }
        look.answer.then(giveBack).catch(() => {})
        if (signal?.aborted) throw signal.reason
        return { answer: { kind: 'cut-short' }, since }
      }
      // If it was applied, the next claim of the same attempt finds it.
      const isOpen = outcomeOf(error) === 'unknown' || isHoldfastError(error, 'CONFLICT')
      if (isOpen) return { answer: { kind: 'unanswered', error }, since }
      throw error
    }
  }

  /** Nobody waits for it: a claim that could not be given back ends with its time. */
  #giveBack(claimed: Claimed, { keepMs }: Checked): void {
    this.#store.abandon(claimed, { begun: false, keepMs }).catch(() => {})
  }

  #isOver(since: Instant, { ttlMs }: Checked): boolean {
    return elapsedMs(this.#clock, since) >= ttlMs - defaultDriftMs(ttlMs)
  }

  async #pruneIfDue(patience: Patience): Promise<void> {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#prunedMs < PRUNING_INTERVAL_MS) return
    this.#prunedMs = nowMs
    // What could not be removed does not count, and is removed another time.
    await patience.limit(this.#store.prune()).catch(() => 0)
  }
}

/** Nobody knows yet what became of the claim. */
interface Unanswered {
  readonly kind: 'unanswered'
  readonly error: unknown
}

type LookAnswer = ClaimAnswer | Unanswered | { readonly kind: 'cut-short' }

type NoOutcome = { readonly kind: 'busy' | 'blocked' } | Unanswered

/** What is said when the time is over. */
function giveUp({ scope, key }: Checked, { waitedMs }: Patience, last: NoOutcome): unknown {
  if (last.kind === 'unanswered') return last.error
  const advice =
    last.kind === 'busy'
      ? 'Somebody else is still at this work: ask again later, or raise waitMs.'
      : 'The database had not answered whether somebody is at this work: another transaction keeps the key locked, or the ' +
        'database hangs. This call has not begun the work: ask again later, or raise waitMs.'
  return new AcquireTimeoutError(resourceName(scope, key), waitedMs, advice)
}

function check(request: IdempotentRequest, work: unknown, options: IdempotentOptions): Checked {
  if (request === undefined) throw new InvalidArgumentError('request', 'must be given: { scope, key }.')
  checkKnownOptions('request', request, ['scope', 'key', 'payload'])
  checkKnownOptions('options', options, ['ttlMs', 'waitMs', 'keepMs', 'storeError', 'signal'])
  if (typeof work !== 'function') throw new InvalidArgumentError('work', 'must be a function.')
  const { storeError } = options
  if (storeError !== undefined && typeof storeError !== 'function')
    throw new InvalidArgumentError('storeError', 'must be a function.')
  return {
    scope: checkName(checkText('scope', request.scope, limits.namespaceBytes), 'scope'),
    key: checkText('key', request.key, limits.nameBytes),
    payload: payloadDigest(request.payload),
    ttlMs: checkNumber('ttlMs', options.ttlMs ?? defaults.ttlMs, { min: 50, max: 86_400_000 }),
    waitMs: checkNumber('waitMs', options.waitMs ?? defaults.waitMs, { min: 0, infinityAllowed: true }),
    keepMs: checkNumber('keepMs', options.keepMs ?? defaults.idempotentKeepMs, { min: 1, max: 1e13 }),
    storeError,
    signal: checkSignal(options.signal),
  }
}
