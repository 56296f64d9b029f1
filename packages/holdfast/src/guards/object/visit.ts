/**
 * One call's dealings with one object. Every change is one write of its head, on condition of the head that was seen:
 *
 *   look ──▶ judge ──refused──▶ thrown
 *   read     judge ──▶ PUT head, if the mark changes ──▶ GET data
 *   write    judge ──▶ PUT data ──▶ PUT head
 *
 * Failures between the steps:
 *   another holder writes or reads after the look: the head's ETag has moved, and the PUT is refused. Look, judge again.
 *   the answer to the PUT is lost, or the store answers with an error, or refuses a copy that the client library has sent by itself:
 *     look. The head has the nonce of this PUT, or lists this write: done. It has not moved: send again. It has moved, and does
 *     not list the write: not applied.
 *   a copy of the PUT lands late: its ETag never comes back, because each head has a nonce and is never deleted.
 *   the process ends after PUT data: nothing refers to the data. `collect` finds it when a newer holder has been here.
 *   the data is collected between the look and GET data: the head has moved on. Look, judge again.
 */

import { type Cancellation, unlessCancelled } from '../../base/cancellation.ts'
import type { Clock } from '../../base/clock.ts'
import {
  BackendUnavailableError,
  type CallOutcome,
  ConflictError,
  isHoldfastError,
  quote,
} from '../../base/errors.ts'
import type { Random } from '../../base/ids.ts'
import { withLimit } from '../../base/within.ts'
import { decide } from '../checkpoint.ts'
import type { Entry } from '../guard-base.ts'
import type { Remembered } from '../rule.ts'
import type { GuardSettings } from '../settings.ts'
import { formatHead, type Head, isSameMark, parseHead, wasNotApplied, withWrite } from './head.ts'
import type { ObjectBody, ObjectStore } from './store.ts'

export interface ObjectTerms {
  readonly store: ObjectStore
  readonly keyOf: (name: string) => string
  readonly callTimeoutMs: number
  readonly clock: Clock
  readonly random: Random
}

/** A head, or the lack of one, as of its ETag. */
export interface Seen {
  readonly head: Head | null
  readonly etag: string | null
}

const BACKEND = 'object store'
/** How often one PUT of a head is sent: Ceph answers 500 to some of many writers. */
const MOST_TRIES = 5

export class Visit {
  readonly key: string
  readonly #name: string
  readonly #token: bigint
  readonly #entry: Entry
  readonly #settings: GuardSettings
  readonly #terms: ObjectTerms
  readonly #signal: AbortSignal | undefined
  #seen: Seen = { head: null, etag: null }
  #hasRead = false
  /** The mark is this call's own, so it does not count as an earlier use. */
  #hasPassed = false

  constructor(settings: GuardSettings, terms: ObjectTerms, entry: Entry, signal: AbortSignal | undefined) {
    const { name = '', token = 0n } = entry.proofs[0]?.fence ?? {}
    this.#name = name
    this.#token = token
    this.key = terms.keyOf(name)
    this.#entry = entry
    this.#settings = settings
    this.#terms = terms
    this.#signal = signal
  }

  get seen(): Seen {
    return this.#seen
  }

  /** `seen`: what an earlier call has seen, instead of a request. What is out of date is found by the write. */
  async look(seen?: Seen): Promise<void> {
    this.#seen = seen ?? (await readHead(this.#terms, this.key, this.#name, this.#signal))
  }

  /** The mark after this call. Throws if the fence must not pass. */
  judge(): Remembered {
    const known = this.#seen.head?.remembered ?? null
    const knowledge = {
      pinnedIssuer: () => known?.highest.issuer ?? null,
      recall: () => known,
      floorOf: () => null,
    }
    const { proofs, once } = this.#entry
    const [decision] = decide(knowledge, this.#settings, proofs, once && !this.#hasPassed).remember
    if (decision === undefined) throw new Error('a guard was asked about no fence')
    return decision.remembered
  }

  /** Leaves the mark at the store. */
  async raise(): Promise<void> {
    for (let remembered = this.judge(); ; remembered = this.judge()) {
      const { head } = this.#seen
      if (isSameMark(head?.remembered, remembered)) break
      if (await this.#put({ last: [], ptr: null, ...head, remembered })) break
    }
    this.#hasPassed = true
  }

  async read(): Promise<Uint8Array | null> {
    for (;;) {
      await this.raise()
      const { head, etag } = this.#seen
      this.#hasRead = true
      if (head === null || head.ptr === null) return null
      const { ptr } = head
      const get = (signal: AbortSignal) => this.#terms.store.get(ptr, { signal })
      const found = await withinLimit(this.#terms, get, this.#signal, 'not-applied')
      if (found !== null) return found.body
      await this.look()
      if (this.#seen.etag === etag) throw this.#failure(`its data, ${quote(ptr)}, was deleted by others`)
    }
  }

  /** Null deletes. */
  async write(body: ObjectBody | null, contentType: string | undefined): Promise<void> {
    this.judge()
    const id = this.#terms.random.id()
    const ptr = body === null ? null : dataKey(this.key, this.#token, id)
    if (body !== null && ptr !== null) await this.#upload(ptr, body, contentType)
    for (;;) {
      const remembered = this.judge()
      const before = this.#seen.head
      const head = withWrite({ last: [], ptr: null, ...before, remembered }, id, ptr)
      if (await this.#put(head, id)) break
      if (!wasNotApplied(before, this.#seen.head))
        throw this.#failure('many others have written since', 'unknown')
      // A newer holder is the better reason.
      this.judge()
      if (this.#hasRead) throw new ConflictError(`${quote(this.key)} has been changed since it was read.`)
    }
    this.#hasPassed = true
  }

  /** Nothing refers to the data yet, so whatever becomes of this request has no effect. */
  async #upload(key: string, body: ObjectBody, contentType: string | undefined): Promise<void> {
    const type = contentType === undefined ? {} : { contentType }
    const put = (signal: AbortSignal) => this.#terms.store.put(key, body, { signal, ...type })
    let etag: string | null = null
    let cause: unknown
    try {
      etag = await withinLimit(this.#terms, put, this.#signal)
    } catch (error) {
      this.#signal?.throwIfAborted()
      cause = error
    }
    if (etag === null) throw this.#failure('its data could not be stored', 'not-applied', cause)
  }

  /** False: not as it was seen any more, and seen again. `write`: the id that a head lists if the write was applied. */
  async #put(next: Omit<Head, 'nonce'>, write?: string): Promise<boolean> {
    const { etag } = this.#seen
    const condition = etag === null ? { ifNoneMatch: '*' as const } : { ifMatch: etag }
    const nonce = this.#terms.random.id()
    const head = { ...next, nonce }
    const put = (signal: AbortSignal) =>
      this.#terms.store.put(headKey(this.key), formatHead(head), { ...condition, signal })
    let failure: unknown
    this.#signal?.throwIfAborted()
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      try {
        const newEtag = await withinLimit(this.#terms, put, this.#signal)
        if (newEtag) {
          this.#seen = { head, etag: newEtag }
          return true
        }
      } catch (error) {
        // An earlier copy may still arrive.
        if (isNotApplied(error) && tries === 0) throw error
        failure = error
        if (this.#signal?.aborted) throw this.#failure('cancelled while it was written', 'unknown', error)
      }
      await this.look().catch((error: unknown) => {
        throw this.#failure('its head could not be read after a write', 'unknown', failure ?? error)
      })
      const now = this.#seen.head
      if (now?.nonce === nonce || (write !== undefined && now?.last.includes(write))) return true
      if (this.#seen.etag !== etag) return false
    }
    throw this.#failure(`its head could not be written in ${MOST_TRIES} tries`, 'unknown', failure)
  }

  #failure(what: string, outcome: CallOutcome = 'not-applied', cause?: unknown) {
    const options = cause === undefined ? undefined : { cause }
    return new BackendUnavailableError(BACKEND, `${quote(this.key)}: ${what}`, outcome, options)
  }
}

export async function readHead(
  terms: ObjectTerms,
  key: string,
  name: string,
  signal?: AbortSignal,
): Promise<Seen> {
  const get = (limit: AbortSignal) => terms.store.get(headKey(key), { signal: limit })
  const found = await withinLimit(terms, get, signal, 'not-applied')
  if (found === null) return { head: null, etag: null }
  // Written on no condition, a head would be written over that of another holder.
  if (!found.etag)
    throw new BackendUnavailableError(BACKEND, `${quote(headKey(key))} came without an ETag`, 'not-applied')
  return { head: parseHead(headKey(key), name, found.body), etag: found.etag }
}

/** One request. `signal`: of the caller, whose reason is thrown; `lost`: the outcome of one that is not answered in time. */
export function withinLimit<T>(
  { clock, callTimeoutMs }: ObjectTerms,
  call: (limit: AbortSignal) => Promise<T>,
  signal: AbortSignal | undefined,
  lost: CallOutcome = 'unknown',
): Promise<T> {
  const work = (limit: Cancellation) => unlessCancelled(call(limit.signal), limit)
  const reason = () => new BackendUnavailableError(BACKEND, `no answer within ${callTimeoutMs} ms`, lost)
  const tie = (limit: Cancellation) => limit.follow(signal)
  return withLimit(clock, callTimeoutMs, work, { keepsProcessAlive: true, reason, tie })
}

function dataKey(key: string, token: bigint, id: string): string {
  return `${key}.d/${token}-${id}`
}

function headKey(key: string): string {
  return `${key}.head`
}

function isNotApplied(error: unknown): boolean {
  return isHoldfastError(error, 'BACKEND_UNAVAILABLE')
    ? error.outcome === 'not-applied'
    : isHoldfastError(error, 'INVALID_ARGUMENT')
}
