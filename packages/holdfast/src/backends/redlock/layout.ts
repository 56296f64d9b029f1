/** The names of keys and the text of locks: version 1 of what is stored. */

import { publicIdOf } from '../../base/ids.ts'
import { escapeBraces, escapeGlob, unescapeBraces } from '../../clients/redis/index.ts'

/** Which process has answered on a node; one key for all namespaces. */
export const bootKey = 'holdfast:redlock:node'

export class Layout {
  readonly #prefix: string
  readonly #keyOf: ((name: string) => string) | undefined

  constructor(namespace: string, keyOf?: (name: string) => string) {
    this.#prefix = `holdfast:${escapeBraces(namespace)}:`
    this.#keyOf = keyOf
  }

  /** Whether names can be found by their keys. */
  get isOwn(): boolean {
    return this.#keyOf === undefined
  }

  lock(name: string): string {
    return this.#keyOf?.(name) ?? `${this.#prefix}{${escapeBraces(name)}}`
  }

  /** The other way round, for locks that do not say their name. */
  nameOf(key: string): string | null {
    const start = `${this.#prefix}{`
    return key.startsWith(start) && key.endsWith('}') ? unescapeBraces(key.slice(start.length, -1)) : null
  }

  session(id: string): string {
    return `${this.#prefix}session:${id}`
  }

  /** For SCAN: the locks whose names start with `prefix`. What it finds is looked at once more by its content. */
  pattern(keyPrefix: string, prefix: string): string {
    return `${escapeGlob(`${keyPrefix}${this.#prefix}{${escapeBraces(prefix)}`)}*`
  }
}

/** Who set a lock: an attempt of a session. Both are secret. */
export interface Owner {
  readonly attempt: string
  readonly session: string
}

/** The tag is not that of the `redis` backend, whose values say something else: each is a stranger to the other. */
export function ownerText({ attempt, session }: Owner): string {
  return `hfr1|${attempt}|${session}|`
}

/**
 * A grant is what the nodes made of it: for each that voted, which process it was and its time of the grant. A late copy of
 * the request, after the lock was deleted, gets another time (T84).
 */
export function grantIdOf(votes: readonly { readonly runId: string; readonly grantedAt: string }[]): string {
  return votes
    .filter(({ grantedAt }) => grantedAt !== '')
    .map(({ runId, grantedAt }) => `${runId}:${grantedAt}`)
    .join(',')
}

/** Two majorities have a node in common: if it says the same of both, they are one grant. */
export function sharesVote(one: string, other: string): boolean {
  const votes = new Set(one.split(','))
  return other.split(',').some((vote) => votes.has(vote))
}

/** When this process made the grant; empty if it did not vote for it, or has started since. */
export function grantedAtBy(runId: string | null, grantId: string): string {
  const vote = runId === null ? undefined : grantId.split(',').find((each) => each.startsWith(`${runId}:`))
  return vote?.slice(vote.indexOf(':') + 1) ?? ''
}

/** What a lock says beyond whose it is, for those who look. */
export interface Details {
  readonly name: string
  readonly holder: string
  readonly note?: string
  readonly owner?: string
  /** Of the session. Older clients do not tell it. */
  readonly ttlMs?: number
}

export function detailsText({ name, holder, note, owner, ttlMs }: Details): string {
  return JSON.stringify({ name, holder, note, owner, ttlMs })
}

export type LockRecord =
  | ({ readonly kind: 'held'; readonly lockDelayMs: number; readonly grantedAtMs: number } & Owner & Details)
  /** Kept closed after an early release. */
  | { readonly kind: 'closed' }
  /** Set by another client of Redlock, or by something else. */
  | { readonly kind: 'foreign'; readonly value: string }

export function parseLock(value: string): LockRecord {
  if (value === 'hfr1|closed') return { kind: 'closed' }
  const [, attempt, session, delay, grantedAt, details] =
    /^hfr1\|([^|]+)\|([^|]+)\|(\d+)\|(\d+\.\d+)\|(.*)$/s.exec(value) ?? []
  if (attempt === undefined || session === undefined || details === undefined)
    return { kind: 'foreign', value }
  return {
    kind: 'held',
    attempt,
    session,
    lockDelayMs: Number(delay),
    grantedAtMs: msOf(grantedAt ?? ''),
    ...(JSON.parse(details) as Details),
  }
}

/** As `TIME` has it: seconds and microseconds, which are not a fraction of them. */
function msOf(grantedAt: string): number {
  const [seconds, microseconds] = grantedAt.split('.').map(Number)
  return (seconds ?? 0) * 1_000 + Math.floor((microseconds ?? 0) / 1_000)
}

/** What may be shown of whoever set it. */
export function publicIdOfLock(record: Extract<LockRecord, { kind: 'held' }>): string {
  return publicIdOf(record.attempt)
}
