/** The requests of a session, as the request script reads them. */
import { InvalidArgumentError, isHoldfastError } from '../../../base/errors.ts'
import { publicIdOf } from '../../../base/ids.ts'
import type { AcquireRequest, Claim, GrantedClaim } from '../../../spi.ts'
import type { RedisScript } from '../client/index.ts'
import type { Keys } from './keys.ts'
import { OpCode } from './scripts/op-codes.ts'
import { requestScript } from './scripts/requests.ts'

/** A claim as the scripts know it. */
export interface ClaimKey {
  /** The lock key of the name. */
  readonly key: string
  /** The attempt and its session. */
  readonly who: string
}

export interface Request extends ClaimKey {
  readonly operation: OpCode
  readonly args: readonly string[]
  /** The terms of an acquire. Requests that share this array share its arguments in a call. */
  readonly terms?: readonly string[]
  /** Of a request that there is a short script for: TTL, JSON of the label, channel. */
  readonly usual?: readonly string[]
}

export interface RequestsOptions {
  readonly keys: Keys
  /** The channel of this process. */
  readonly channel: string
  readonly session: { readonly id: string; readonly ttlMs: number; readonly holder: string }
}

/** An abandoned attempt is remembered for at least that long. */
const SHORTEST_MARK_MS = 60_000
const NONE: readonly string[] = []

export class Requests {
  readonly #keys: Keys
  readonly #channel: string
  readonly #ttl: string
  /** Ties an attempt to its session, and is shown with it. The secret half of the attempt is what protects a claim. */
  readonly #tag: string
  readonly #holder: string
  /** The terms that nearly all requests of the session ask for. */
  readonly #usualTerms: readonly string[]
  readonly #usual: readonly string[]

  constructor({ keys, channel, session: { id, ttlMs, holder } }: RequestsOptions) {
    this.#keys = keys
    this.#channel = channel
    this.#ttl = String(ttlMs)
    this.#tag = publicIdOf(id)
    this.#holder = holder
    const shown = JSON.stringify([holder])
    this.#usual = [this.#ttl, shown, channel]
    this.#usualTerms = [OpCode.terms, `0|${ttlMs}|${shown}`, this.#ttl, channel]
  }

  claim({ name, attempt }: Claim): ClaimKey {
    if (attempt.includes('|')) throw new InvalidArgumentError('attempt', 'must not contain a |.')
    return { key: this.#keys.lock(name), who: `${attempt}|${this.#tag}` }
  }

  acquire(request: AcquireRequest, operation: typeof OpCode.enqueue | typeof OpCode.tryAcquire): Request {
    const { key, who } = this.claim(request)
    const { mode, lockDelayMs, note, owner, maxWaiters } = request
    const isUsual = mode === 'exclusive' && lockDelayMs === 0 && (note ?? owner ?? maxWaiters) === undefined
    if (!isUsual) return { key, who, operation, args: NONE, terms: this.#termsOf(request) }
    return { key, who, operation, args: NONE, terms: this.#usualTerms, usual: this.#usual }
  }

  renew(claim: GrantedClaim): Request {
    return this.#ofHolder(claim, OpCode.renew, this.#ttl)
  }

  heartbeat(claim: Claim): Request {
    return { ...this.claim(claim), operation: OpCode.heartbeat, args: ['', this.#ttl] }
  }

  release(claim: GrantedClaim, keepForMs: number): Request {
    return this.#ofHolder(claim, OpCode.release, String(Math.ceil(keepForMs)))
  }

  #ofHolder(claim: GrantedClaim, operation: OpCode, ms: string): Request {
    const { key, who } = this.claim(claim)
    const args = [claim.grantId, ms]
    const isUsual = claim.grantId !== '' && (operation === OpCode.renew || ms === '0')
    return isUsual ? { key, who, operation, args, usual: this.#usual } : { key, who, operation, args }
  }

  abandon(claim: Claim): Request {
    const markMs = Math.max(SHORTEST_MARK_MS, 2 * Number(this.#ttl))
    return { ...this.claim(claim), operation: OpCode.abandon, args: ['', String(markMs)] }
  }

  /** Null for a name that has no key, or an attempt that cannot be written: it was never asked for. */
  abandonIfAsked(claim: Claim): Request | null {
    try {
      return this.abandon(claim)
    } catch (error) {
      if (isHoldfastError(error, 'INVALID_ARGUMENT')) return null
      throw error
    }
  }

  #termsOf(request: AcquireRequest): readonly string[] {
    const { lockDelayMs, note, owner, weight, capacity, mode, maxWaiters = '' } = request
    const shown = JSON.stringify(
      [this.#holder, note, owner].slice(0, owner !== undefined ? 3 : note !== undefined ? 2 : 1),
    )
    const body = `${Math.ceil(lockDelayMs)}|${this.#ttl}|${shown}`
    return [
      OpCode.anyTerms,
      body,
      this.#ttl,
      this.#channel,
      String(weight),
      String(capacity),
      mode,
      String(maxWaiters),
    ]
  }
}

export function lookAt({ key, who }: ClaimKey): Request {
  return { key, who, operation: OpCode.look, args: ['', ''] }
}

export interface ScriptCall {
  readonly script: RedisScript
  readonly keys: readonly string[]
  readonly args: readonly string[]
}

/** A call of the whole script (`scripts/requests.ts`). `marks`: its last keys. */
export function wholeCallOf(
  requests: readonly Request[],
  setting: string,
  marks: readonly string[],
): ScriptCall {
  const keys: string[] = []
  const args = [setting]
  let last: readonly string[] | undefined
  for (const { key, operation, who, terms, args: own } of requests) {
    keys.push(key)
    if (terms !== undefined && terms !== last) args.push(...terms)
    last = terms ?? last
    args.push(operation + who, ...own)
  }
  keys.push(...marks)
  return { script: requestScript, keys, args }
}

/** A call of a short script (`scripts/short.ts`), for a request that is alone in its call. */
export function shortCallOf(
  { key, operation, who, args, usual }: Request,
  watch: string,
):
  | { readonly script: 'acquire' | 'held'; readonly key: string; readonly args: readonly string[] }
  | undefined {
  if (usual === undefined) return undefined
  const [ttl = '', shown = '', channel = ''] = usual
  if (operation === OpCode.enqueue || operation === OpCode.tryAcquire) {
    const own = operation === OpCode.enqueue ? channel : ''
    return { script: 'acquire', key, args: [watch, who, ttl, shown, own] }
  }
  const [grantId = '', ms = ''] = args
  const value = `hf1|${who}|0|${ttl}|${shown}|${grantId.includes('.') ? `|${grantId}` : `${grantId}|`}`
  return { script: 'held', key, args: operation === OpCode.renew ? [watch, value, ms] : [watch, value] }
}
