/**
 * The work under a claim, from the claim to its outcome. What may go wrong:
 *   the process dies, or is paused past the end of the claim: the next caller takes over, and is told so (`isTakeover`). One
 *     that was paused learns it from `signal`, from the guards that refuse its fence, and from LEASE_LOST when it settles.
 *   it dies after the work and before the settling: the work is done again. For work within this database there is no such
 *     moment: `store(tx, result)` settles in the transaction that does the work.
 *   the answer to the settling is lost: it is settled again. If it hangs, the caller is told that the outcome is unknown.
 *   the transaction of `store` is rolled back, or still open when the work returns: the result is read back from the store
 *     after its end. Without one the call ends with NOT_COMMITTED, and the claim is given back.
 */

import type { Clock, Instant } from '../base/clock.ts'
import { defaults } from '../base/defaults.ts'
import {
  BackendUnavailableError,
  InvalidArgumentError,
  isHoldfastError,
  LeaseLostError,
  messageOf,
  NotCommittedError,
  outcomeOf,
  quote,
  textOf,
} from '../base/errors.ts'
import type { Random } from '../base/ids.ts'
import { growingPauseMs } from '../base/pauses.ts'
import type { IdempotentContext } from './idempotent.ts'
import { claimFence, KeptClaim } from './kept-claim.ts'
import type { Claimed, KeyStore, Outcome, Standing } from './key-store.ts'
import { OutOfPatience, Patience, within } from './patience.ts'
import { fromJson, resourceName, toJson } from './payload.ts'

/** Terms with which the work was asked for. */
export interface Terms {
  readonly ttlMs: number
  readonly keepMs: number
  readonly storeError: ((error: unknown) => unknown) | undefined
  readonly signal: AbortSignal | undefined
}

const PAUSES = { firstMs: 10, longestMs: defaults.pollMs }
/** Far below what can be stored. */
const MESSAGE_CHARACTERS = 10_000

export class ClaimedWork<Tx> {
  readonly #store: KeyStore<Tx>
  readonly #clock: Clock
  readonly #random: Random
  readonly #terms: Terms
  readonly #claimed: Claimed
  readonly #resource: string
  /** Calls of `store`. After the first one, only a transaction that was committed gives the result. */
  readonly #stores: Promise<void>[] = []
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
    found: { readonly token: bigint; readonly isTakeover: boolean; readonly since: Instant },
    issuer: string,
  ): Promise<T> {
    const { token, isTakeover, since } = found
    const { ttlMs, keepMs, signal } = this.#terms
    const kept = new KeptClaim({
      clock: this.#clock,
      resource: this.#resource,
      since,
      ttlMs,
      // One that is not answered is asked again, over another connection, while there is time.
      renew: () => {
        const extending = this.#store.extend(this.#claimed, ttlMs, keepMs)
        return within(this.#clock, ttlMs / defaults.renewalsPerTtl, extending)
      },
    })
    const context: IdempotentContext<Tx> = {
      fence: claimFence({ issuer, resource: this.#resource, token, attempt: this.#claimed.attempt }),
      get signal() {
        return signal === undefined ? kept.signal : AbortSignal.any([kept.signal, signal])
      },
      isTakeover,
      store: (tx, result) => {
        const storing = this.#storeIn(tx, result)
        if (!this.#hasEnded) this.#stores.push(storing)
        return storing
      },
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
    if (this.#stores.length > 0) return this.#committed()
    let body: string
    try {
      body = toJson('result', result)
    } catch (error) {
      // The work is done and must not be done again, although no caller can be told its result.
      await this.#settle({ kind: 'failed', body: toJson('failure', failureOf(error)) })
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
   * COMMIT in a failed transaction with ROLLBACK. So the result is read back; without one, the claim is given back. A
   * `store` that the work did not wait for may still store a result, so it is waited for first.
   */
  async #committed(): Promise<string> {
    const { keepMs } = this.#terms
    const stored = Promise.allSettled(this.#stores)
    const readBack = async () => {
      await stored
      return this.#store.abandon(this.#claimed, { begun: true, keepMs })
    }
    const standing = await this.#persist(readBack, {
      why: 'the transaction of `store` is still open, or the database hangs or cannot be reached. Commit before the work returns',
      mayBeStored: true,
    })
    if (standing.kind === 'done') return standing.body
    if (standing.kind === 'none') throw new NotCommittedError(this.#claimed.scope, this.#claimed.key)
    throw this.#takenOver()
  }

  /**
   * A failure of `storeError` is told, and the work is not done again: the error may have been one to be stored (T104, swallowed failures of callbacks).
   */
  async #fail(error: unknown): Promise<void> {
    let body: string | undefined
    try {
      const failure = await this.#terms.storeError?.(error)
      if (failure !== undefined) body = toJson('failure', failure)
    } catch (cause) {
      await this.#conclude(toJson('failure', failureOf(error)))
      throw new InvalidArgumentError(
        'storeError',
        `has failed: ${textOf(cause)}. The message of the work's error was stored instead, so the work is not done again: ${textOf(error)}`,
        { cause: new AggregateError([cause, error]) },
      )
    }
    await this.#conclude(body)
  }

  /**
   * Stores the failure, or gives the claim back if there is none to store. Never replaces the error of the work: what fails
   * here ends by itself when the claim's time is over, and what takes too long goes on behind. A result that the work has
   * stored and committed stays.
   */
  async #conclude(body: string | undefined): Promise<void> {
    const { keepMs } = this.#terms
    try {
      if (body === undefined)
        await within(
          this.#clock,
          defaults.callTimeoutMs,
          this.#store.abandon(this.#claimed, { begun: true, keepMs }),
        )
      else await this.#settle({ kind: 'failed', body })
    } catch {
      // See above.
    }
  }

  async #settle(outcome: Omit<Outcome, 'keepMs'>): Promise<void> {
    const { keepMs } = this.#terms
    const standing = await this.#persist(() => this.#store.settle(this.#claimed, { ...outcome, keepMs }), {
      why: 'another transaction keeps the key locked, or the database hangs or cannot be reached',
      mayBeStored: false,
    })
    if (standing.kind === 'lost') throw this.#takenOver()
  }

  /**
   * Repeats a step of the store until it is answered or the time is over. `why`: what may be wrong then. `mayBeStored`:
   * whether there may be an outcome although no step was applied; a step whose answer was lost may have stored one, too.
   */
  async #persist(
    step: () => Promise<Standing>,
    { why, mayBeStored }: { readonly why: string; readonly mayBeStored: boolean },
  ): Promise<Standing> {
    const patience = new Patience(this.#clock, defaults.callTimeoutMs)
    let isUnknown = mayBeStored
    let failure: unknown
    try {
      for (let tries = 0; ; tries++) {
        try {
          return await patience.limit(step())
        } catch (error) {
          const isLate = error instanceof OutOfPatience
          if (!isLate) failure = error
          isUnknown ||= isLate || outcomeOf(error) === 'unknown'
          const canRepeat = isHoldfastError(error) && error.retryable
          if (canRepeat) await patience.pause(growingPauseMs(tries, PAUSES) * (0.5 + this.#random.fraction()))
          if (!canRepeat || patience.isOver)
            throw isUnknown ? unanswered(this.#resource, why, failure) : error
        }
      }
    } finally {
      patience.end()
    }
  }

  #takenOver(): LeaseLostError {
    return new LeaseLostError(this.#resource, 'taken-over')
  }
}

function unanswered(resource: string, why: string, cause: unknown): BackendUnavailableError {
  return new BackendUnavailableError(
    'idempotent',
    `the work for ${quote(resource)} is done, and the database has not answered whether its outcome is stored: ` +
      `${why}. Ask again with the same key`,
    'unknown',
    { cause },
  )
}

function failureOf(error: unknown): { readonly message: string } {
  return { message: messageOf(error).slice(0, MESSAGE_CHARACTERS) }
}
