/** The work under a claim, from the claim to its outcome: see `idempotent.ts` for what may go wrong in between. */
import { type Clock, type Instant, sleep } from '../core/clock.ts'
import { defaults } from '../core/defaults.ts'
import { BackendUnavailableError, isHoldfastError, LeaseLostError, quote } from '../core/errors.ts'
import { makeFence } from '../core/fence.ts'
import { publicIdOf, type Random } from '../core/ids.ts'
import type { IdempotentContext } from './idempotent.ts'
import { KeptClaim } from './kept-claim.ts'
import type { Claimed, KeyStore, Outcome } from './key-store.ts'
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
  #stored: string | undefined

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
    const { keepMs } = this.#terms
    if (!(await this.#store.settle(this.#claimed, { kind: 'done', body, keepMs }, tx)))
      throw this.#takenOver()
    this.#stored = body
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

  async #settled(body: string): Promise<unknown> {
    await this.#settle({ kind: 'done', body })
    return fromJson(body)
  }

  async #settle(outcome: Omit<Outcome, 'keepMs'>): Promise<void> {
    const { keepMs } = this.#terms
    const patience = this.#patience()
    for (let settlings = 1; ; settlings++) {
      try {
        if (await patience.limit(this.#store.settle(this.#claimed, { ...outcome, keepMs }))) return
        throw this.#takenOver()
      } catch (error) {
        if (error instanceof OutOfPatience) throw unanswered(this.#resource)
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

function unanswered(resource: string): BackendUnavailableError {
  return new BackendUnavailableError(
    'idempotent',
    `the work for ${quote(resource)} is done, and the database has not answered whether its outcome is stored: ` +
      'another transaction keeps the key locked, or the database hangs. Ask again with the same key',
    'unknown',
  )
}

function messageOf(error: unknown): { readonly message: string } {
  return { message: error instanceof Error ? error.message : String(error) }
}
