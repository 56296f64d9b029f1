/** The work under a claim, from the claim to its outcome: see `idempotent.ts` for what may go wrong in between. */
import { type Clock, type Instant, sleep } from '../core/clock.ts'
import { defaults } from '../core/defaults.ts'
import {
  BackendUnavailableError,
  InvalidArgumentError,
  isHoldfastError,
  LeaseLostError,
  NotCommittedError,
  quote,
} from '../core/errors.ts'
import { makeFence } from '../core/fence.ts'
import { publicIdOf, type Random } from '../core/ids.ts'
import type { IdempotentContext } from './idempotent.ts'
import { KeptClaim } from './kept-claim.ts'
import type { Claimed, KeyStore, Outcome, Standing } from './key-store.ts'
import { OutOfPatience, Patience } from './patience.ts'
import { fromJson, resourceName, toJson } from './payload.ts'

/** What the work was asked for with. */
export interface Terms {
  readonly ttlMs: number
  readonly keepMs: number
  readonly storeError: ((error: unknown) => unknown) | undefined
  readonly signal: AbortSignal | undefined
}

const FIRST_PAUSE_MS = 10
const MOST_SETTLINGS = 6

export class ClaimedWork<Tx> {
  readonly #store: KeyStore<Tx>
  readonly #clock: Clock
  readonly #random: Random
  readonly #terms: Terms
  readonly #claimed: Claimed
  readonly #resource: string
  /** Whether the work has called `store`: from then on only a transaction that was committed gives the result. */
  #usesStore = false
  #hasEnded = false

  constructor(store: KeyStore<Tx>, clock: Clock, random: Random, terms: Terms, claimed: Claimed) {
    this.#store = store
    this.#clock = clock
    this.#random = random
    this.#terms = terms
    this.#claimed = claimed
    this.#resource = resourceName(claimed.scope, claimed.key)
  }

  async perform<T>(
    work: (context: IdempotentContext<Tx>) => Promise<T> | T,
    { token, isTakeover }: { readonly token: bigint; readonly isTakeover: boolean },
    issuer: string,
    since: Instant,
  ): Promise<T> {
    const { ttlMs, keepMs, signal } = this.#terms
    const kept = new KeptClaim({
      clock: this.#clock,
      resource: this.#resource,
      since,
      ttlMs,
      // One that is not answered is asked again, over another connection, while there is time.
      renew: () =>
        new Patience(this.#clock, ttlMs / defaults.renewalsPerTtl, undefined).limit(
          this.#store.extend(this.#claimed, ttlMs, keepMs),
        ),
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
      return fromJson(await this.#outcomeOf(work, context)) as T
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
      this.#hasEnded = true
      await this.#fail(error)
      throw error
    }
    this.#hasEnded = true
    if (this.#usesStore) return this.#committed()
    let body: string
    try {
      body = toJson('result', result)
    } catch (error) {
      // The work is done and must not be done again, although no caller can be told its result.
      await this.#settle({ kind: 'failed', body: toJson('failure', messageOf(error)) })
      throw error
    }
    await this.#settle({ kind: 'done', body })
    return body
  }

  async #storeIn(tx: Tx, result: unknown): Promise<void> {
    if (this.#hasEnded)
      throw new LeaseLostError(this.#resource, 'released', {
        advice: 'The work has ended, and nothing was stored: roll the transaction back.',
      })
    this.#usesStore = true
    const body = toJson('result', result)
    const { keepMs } = this.#terms
    const standing = await this.#store.settle(this.#claimed, { kind: 'done', body, keepMs }, tx)
    if (standing.kind === 'lost') throw this.#takenOver()
    if (standing.kind !== 'done' || standing.body !== body)
      throw new InvalidArgumentError(
        'result',
        'must be the one that was stored before: other callers may have it already. Roll this transaction back.',
      )
  }

  /**
   * The transaction of `store` is the user's, and may have been rolled back, also without an error: PostgreSQL answers
   * COMMIT in a failed transaction with ROLLBACK. So the result is read back; without one, the claim is given back.
   */
  async #committed(): Promise<string> {
    const { keepMs } = this.#terms
    const standing = await this.#persist(
      () => this.#store.abandon(this.#claimed, { begun: true, keepMs }),
      'the transaction of `store` is still open, or the database hangs. Commit before the work returns',
    )
    if (standing.kind === 'done') return standing.body
    if (standing.kind === 'none') throw new NotCommittedError(this.#claimed.scope, this.#claimed.key)
    throw this.#takenOver()
  }

  /**
   * Never replaces the error of the work: what fails here ends by itself when the claim's time is over, and what takes too
   * long goes on behind. A result that the work has stored and committed stays.
   */
  async #fail(error: unknown): Promise<void> {
    const { storeError, keepMs } = this.#terms
    try {
      const failure = await storeError?.(error)
      if (failure === undefined)
        await this.#patience().limit(this.#store.abandon(this.#claimed, { begun: true, keepMs }))
      else await this.#settle({ kind: 'failed', body: toJson('failure', failure) })
    } catch {
      // See above.
    }
  }

  async #settle(outcome: Omit<Outcome, 'keepMs'>): Promise<void> {
    const { keepMs } = this.#terms
    const standing = await this.#persist(
      () => this.#store.settle(this.#claimed, { ...outcome, keepMs }),
      'another transaction keeps the key locked, or the database hangs',
    )
    if (standing.kind === 'lost') throw this.#takenOver()
  }

  /** Repeats a step of the store whose answer was lost. `why`: what may be wrong if there is no answer in time. */
  async #persist(step: () => Promise<Standing>, why: string): Promise<Standing> {
    const patience = this.#patience()
    for (let settlings = 1; ; settlings++) {
      try {
        return await patience.limit(step())
      } catch (error) {
        if (error instanceof OutOfPatience) throw unanswered(this.#resource, why)
        if (!isHoldfastError(error) || !error.retryable || settlings === MOST_SETTLINGS) throw error
      }
      await sleep(this.#clock, (0.5 + this.#random.fraction()) * FIRST_PAUSE_MS * 2 ** settlings, {
        keepsProcessAlive: true,
      })
    }
  }

  /** The work is over, and somebody waits to hear of it. */
  #patience(): Patience {
    return new Patience(this.#clock, defaults.callTimeoutMs, undefined)
  }

  #takenOver(): LeaseLostError {
    return new LeaseLostError(this.#resource, 'taken-over')
  }
}

function unanswered(resource: string, why: string): BackendUnavailableError {
  return new BackendUnavailableError(
    'idempotent',
    `the work for ${quote(resource)} is done, and the database has not answered whether its outcome is stored: ` +
      `${why}. Ask again with the same key`,
    'unknown',
  )
}

function messageOf(error: unknown): { readonly message: string } {
  return { message: error instanceof Error ? error.message : String(error) }
}
