/** The requests of a session, as the scripts read them. */
import { InvalidArgumentError, isHoldfastError } from '../../base/errors.ts'
import { publicIdOf } from '../../base/ids.ts'
import type { AcquireRequest, GrantedClaim } from '../../spi.ts'
import type { Keys } from './keys.ts'
import { Letter } from './scripts/letters.ts'

/** One step of the batch script. */
export interface Request {
  readonly key: string
  readonly letter: Letter
  /** The attempt and its session. */
  readonly who: string
  /** What the letter needs besides. */
  readonly args: readonly string[]
}

export interface RequestsOptions {
  readonly keys: Keys
  /** The channel of this process. */
  readonly channel: string
  readonly session: { readonly id: string; readonly ttlMs: number; readonly holder: string }
}

/** An abandoned attempt is remembered for at least that long. */
const SHORTEST_MARK_MS = 60_000

export class Requests {
  readonly #keys: Keys
  readonly #channel: string
  readonly #ttlMs: number
  /** Ties an attempt to its session, and is shown with it. The secret half of the attempt is what protects a claim. */
  readonly #tag: string
  /** Label without a note, as it is stored with every claim. */
  readonly #label: string
  readonly #holder: string
  /** What nearly all requests of the session say alike; one array, so that a batch says it once. */
  readonly #usualTerms: readonly string[]

  constructor({ keys, channel, session: { id, ttlMs, holder } }: RequestsOptions) {
    this.#keys = keys
    this.#channel = channel
    this.#ttlMs = ttlMs
    this.#tag = publicIdOf(id)
    this.#holder = holder
    this.#label = JSON.stringify([holder])
    this.#usualTerms = [`0|${ttlMs}|${this.#label}`, String(ttlMs), channel]
  }

  who(attempt: string): string {
    if (attempt.includes('|')) throw new InvalidArgumentError('attempt', 'must not contain a |.')
    return `${attempt}|${this.#tag}`
  }

  asking(request: AcquireRequest, key: string, who: string, inLine: boolean): Request {
    const { mode, weight, capacity, lockDelayMs, note, owner, maxWaiters } = request
    const isUsual = mode === 'exclusive' && lockDelayMs === 0 && (note ?? owner ?? maxWaiters) === undefined
    if (isUsual) return { key, letter: inLine ? Letter.enqueue : Letter.tryTake, who, args: this.#usualTerms }
    const terms = [this.#body(request), String(this.#ttlMs), this.#channel]
    const args = [...terms, String(weight), String(capacity), mode]
    if (inLine && maxWaiters !== undefined)
      return { key, letter: Letter.enqueueUpTo, who, args: [...args, String(maxWaiters)] }
    return { key, letter: inLine ? Letter.enqueueAny : Letter.tryTakeAny, who, args }
  }

  releasing({ name, attempt, grantId }: GrantedClaim, keepForMs: number): Request {
    const claim = { key: this.#keys.lock(name), who: this.who(attempt) }
    return keepForMs === 0
      ? { ...claim, letter: Letter.release, args: [grantId] }
      : { ...claim, letter: Letter.releaseAndKeep, args: [grantId, String(Math.ceil(keepForMs))] }
  }

  /** Whatever the attempt holds, by whatever grant. */
  givingUp(name: string, attempt: string): Request {
    return this.releasing({ name, attempt, grantId: '' }, 0)
  }

  abandoning(name: string, attempt: string): Request {
    const args = [String(Math.max(SHORTEST_MARK_MS, 2 * this.#ttlMs))]
    return { key: this.#keys.lock(name), letter: Letter.abandon, who: this.who(attempt), args }
  }

  /** Null for a name that has no key, or an attempt that cannot be written: it was never asked for. */
  abandoningIfAsked(name: string, attempt: string): Request | null {
    try {
      return this.abandoning(name, attempt)
    } catch (error) {
      if (isHoldfastError(error, 'INVALID_ARGUMENT')) return null
      throw error
    }
  }

  #body({ lockDelayMs, note, owner }: AcquireRequest): string {
    const shown = owner !== undefined ? [this.#holder, note, owner] : [this.#holder, note]
    const text = (note ?? owner) === undefined ? this.#label : JSON.stringify(shown)
    return `${Math.ceil(lockDelayMs)}|${this.#ttlMs}|${text}`
  }
}
