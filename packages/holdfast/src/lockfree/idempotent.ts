/**
 * Work that is done once for a key, however often it is asked for.
 *
 *   (no row) ──claim──▶ working ──settle──▶ done | failed ──keepMs──▶ (no row)
 *                       working ──its time is over: claim by another attempt, with a higher token──▶ working
 *                       working ──abandon: the work threw, and errors are not stored──▶ (no row)
 *
 * What may go wrong between its steps: claim · work (renewed meanwhile) · settle
 *   the answer to the claim is lost: the same attempt asks again, and gets its own claim.
 *   a crash after the claim: when its time is over, the next caller takes over. It is told so (`isTakeover`), because
 *     what the work does outside of this database may have been done or not.
 *   a pause past the end of the claim: somebody takes over. The paused one is told by `signal` when it wakes, every guard
 *     that its successor has been at refuses its fence, and its outcome is not stored (LEASE_LOST).
 *   a crash after the work and before the settling: the work is done again by whoever takes over. For work within this
 *     database there is no such moment: `store(tx, result)` settles in the transaction that does the work.
 *   the answer to the settling is lost: it is settled again; that is the same outcome, by the same attempt.
 *   a second caller meanwhile: it waits, and looks again and again until there is an outcome or its patience is over.
 *   another payload: refused, as long as the key is remembered.
 */
import { type Clock, instantOf, sleep, systemClock } from '../core/clock.ts'
import { defaults, limits } from '../core/defaults.ts'
import {
  AcquireTimeoutError,
  InvalidArgumentError,
  isHoldfastError,
  KeyReusedError,
  LeaseLostError,
  outcomeOf,
  StoredFailureError,
} from '../core/errors.ts'
import { type Fence, makeFence } from '../core/fence.ts'
import { newAttempt, publicIdOf, type Random, systemRandom } from '../core/ids.ts'
import { checkName, checkText } from '../core/names.ts'
import { checkKnownOptions, checkNumber, checkSignal } from '../core/options.ts'
import { KeptClaim } from './kept-claim.ts'
import type { ClaimAnswer, Claimed, KeyStore, Outcome } from './key-store.ts'
import { fromJson, payloadDigest, resourceName, toJson } from './payload.ts'

export interface IdempotentRequest {
  /** What kind of work it is: keys of different scopes have nothing to do with each other. */
  readonly scope: string
  /** Which piece of work. Take it from the client's request, so that a repeated request has the same. */
  readonly key: string
  /** What the work depends on, as JSON or bytes. Another one with the same key is refused with `KEY_REUSED`. */
  readonly payload?: unknown
}

export interface IdempotentOptions {
  /** How long a claim outlives its last renewal: after a crash, nobody takes over before. Default 15 s. */
  readonly ttlMs?: number
  /** For how long somebody else's work is waited for. Default 30 s; `Infinity` is allowed, 0 does not wait. */
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
  /** Somebody has begun this work before, and did not finish. Find out what it has done outside of this database. */
  readonly isTakeover: boolean
  /**
   * Stores the result in a transaction of yours, so that the work in it and its result are one step. It is then the
   * result of the call. Commit the transaction before the work returns.
   *
   * @throws LeaseLostError   somebody has taken over; roll back
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
   * @throws AcquireTimeoutError   somebody else was still at it after `waitMs`
   * @throws LeaseLostError        somebody has taken over: this call's outcome does not count
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

interface Checked {
  readonly scope: string
  readonly key: string
  readonly payload: string | null
  readonly ttlMs: number
  readonly waitMs: number
  readonly keepMs: number
  readonly storeError: ((error: unknown) => unknown) | undefined
  readonly signal: AbortSignal | undefined
}

const FIRST_PAUSE_MS = 10
const MOST_SETTLINGS = 6
const PRUNING_INTERVAL_MS = 600_000

class Desk<Tx> {
  readonly #store: KeyStore<Tx>
  readonly #clock: Clock
  readonly #random: Random
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
    await this.#pruneIfDue()
    const attempt = newAttempt(this.#random)
    const startMs = this.#clock.monotonicMs()
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, defaults.pollMs)) {
      const since = instantOf(this.#clock)
      const waitedMs = since.monotonicMs - startMs
      const answer = await this.#claim(checked, attempt, waitedMs < checked.waitMs)
      switch (answer.kind) {
        case 'done':
          return fromJson(answer.body) as T
        case 'failed':
          throw new StoredFailureError(checked.scope, checked.key, fromJson(answer.body))
        case 'reused':
          throw new KeyReusedError(checked.scope, checked.key)
        case 'claimed': {
          const claimed = { scope: checked.scope, key: checked.key, attempt }
          const performance = new Performance(this.#store, this.#clock, this.#random, checked, claimed)
          return performance.perform(work, answer, since)
        }
        case 'busy':
          if (waitedMs >= checked.waitMs)
            throw new AcquireTimeoutError(
              resourceName(checked.scope, checked.key),
              waitedMs,
              'Somebody else is still at this work: ask again later, or raise waitMs.',
            )
      }
      const leftMs = checked.waitMs - (this.#clock.monotonicMs() - startMs)
      await sleep(this.#clock, Math.min(pauseMs * (0.5 + this.#random.fraction()), Math.max(0, leftMs)), {
        ...(checked.signal !== undefined && { signal: checked.signal }),
        keepsProcessAlive: true,
      })
    }
  }

  async #claim(checked: Checked, attempt: string, mayRepeat: boolean): Promise<ClaimAnswer> {
    const { scope, key, payload, ttlMs, keepMs } = checked
    const claiming = this.#store.claim({ scope, key, payload, attempt, ttlMs, keepMs })
    try {
      return await unlessCalledOff(claiming, checked.signal)
    } catch (error) {
      if (checked.signal?.aborted) {
        // It may be waiting behind another's transaction. What it claims when it gets there is given back.
        const giveBack = ({ kind }: ClaimAnswer) =>
          kind === 'claimed' ? this.#store.abandon({ scope, key, attempt }) : undefined
        claiming.then(giveBack).catch(() => {})
        throw checked.signal.reason
      }
      // If it was applied, the next claim of the same attempt finds it.
      const isOpen = outcomeOf(error) === 'unknown' || isHoldfastError(error, 'CONFLICT')
      if (isOpen && mayRepeat) return { kind: 'busy', leftMs: 0 }
      throw error
    }
  }

  async #pruneIfDue(): Promise<void> {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#prunedMs < PRUNING_INTERVAL_MS) return
    this.#prunedMs = nowMs
    // What could not be removed does not count, and is removed another time.
    await this.#store.prune().catch(() => 0)
  }
}

/** Settles with `work`, or rejects as soon as the signal aborts; `work` is left to itself then. */
function unlessCalledOff<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work
  return new Promise<T>((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    work.finally(() => signal.removeEventListener('abort', onAbort)).then(resolve, reject)
  })
}

/** The work of one claim, from the claim to its outcome. */
class Performance<Tx> {
  readonly #store: KeyStore<Tx>
  readonly #clock: Clock
  readonly #random: Random
  readonly #checked: Checked
  readonly #claimed: Claimed
  readonly #resource: string
  #stored: string | undefined

  constructor(store: KeyStore<Tx>, clock: Clock, random: Random, checked: Checked, claimed: Claimed) {
    this.#store = store
    this.#clock = clock
    this.#random = random
    this.#checked = checked
    this.#claimed = claimed
    this.#resource = resourceName(claimed.scope, claimed.key)
  }

  async perform<T>(
    work: (context: IdempotentContext<Tx>) => Promise<T> | T,
    { token, isTakeover }: { readonly token: bigint; readonly isTakeover: boolean },
    since: ReturnType<typeof instantOf>,
  ): Promise<T> {
    const { ttlMs, signal } = this.#checked
    const issuer = await this.#store.issuer()
    const kept = new KeptClaim({
      clock: this.#clock,
      resource: this.#resource,
      since,
      ttlMs,
      renew: () => this.#store.extend(this.#claimed, ttlMs),
    })
    const context: IdempotentContext<Tx> = {
      fence: makeFence({
        issuer,
        name: this.#resource,
        mode: 'exclusive',
        token,
        grant: publicIdOf(this.#claimed.attempt),
      }),
      get signal() {
        return signal === undefined ? kept.signal : AbortSignal.any([kept.signal, signal])
      },
      isTakeover,
      store: (tx, result) => this.#storeIn(tx, result),
    }
    try {
      return (await this.#settled(await this.#outcomeOf(work, context))) as T
    } finally {
      kept.stop()
    }
  }

  async #outcomeOf<T>(
    work: (context: IdempotentContext<Tx>) => Promise<T> | T,
    context: IdempotentContext<Tx>,
  ): Promise<string> {
    let result: T
    try {
      result = await work(context)
    } catch (error) {
      await this.#fail(error)
      throw error
    }
    try {
      return this.#stored ?? toJson('result', result)
    } catch (error) {
      // The work is done and must not be done again, although nobody can be told what came of it.
      await this.#settle({ kind: 'failed', body: toJson('failure', messageOf(error)) })
      throw error
    }
  }

  async #storeIn(tx: Tx, result: unknown): Promise<void> {
    const body = toJson('result', result)
    const { keepMs } = this.#checked
    if (!(await this.#store.settle(this.#claimed, { kind: 'done', body, keepMs }, tx)))
      throw this.#takenOver()
    this.#stored = body
  }

  /** Never replaces the error of the work: what fails here ends by itself when the claim's time is over. */
  async #fail(error: unknown): Promise<void> {
    const { storeError } = this.#checked
    try {
      const failure = storeError?.(error)
      if (failure === undefined) await this.#store.abandon(this.#claimed)
      else await this.#settle({ kind: 'failed', body: toJson('failure', failure) })
    } catch {
      // See above.
    }
  }

  async #settled(body: string): Promise<unknown> {
    await this.#settle({ kind: 'done', body })
    return fromJson(body)
  }

  async #settle(outcome: Omit<Outcome, 'keepMs'>): Promise<void> {
    const { keepMs } = this.#checked
    for (let settlings = 1; ; settlings++) {
      try {
        if (await this.#store.settle(this.#claimed, { ...outcome, keepMs })) return
        throw this.#takenOver()
      } catch (error) {
        if (!isHoldfastError(error) || !error.retryable || settlings === MOST_SETTLINGS) throw error
      }
      await sleep(this.#clock, (0.5 + this.#random.fraction()) * FIRST_PAUSE_MS * 2 ** settlings, {
        keepsProcessAlive: true,
      })
    }
  }

  #takenOver(): LeaseLostError {
    return new LeaseLostError(this.#resource, 'taken-over')
  }
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

function messageOf(error: unknown): { readonly message: string } {
  return { message: error instanceof Error ? error.message : String(error) }
}
