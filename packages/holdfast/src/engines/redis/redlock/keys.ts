/** The text of locks: version 1 of what is stored. */

/** Which process has answered on a node; one key for all namespaces. */
export const bootKey = 'holdfast:redlock:node'

/**
 * The start of a lock: an attempt of a session set it. Both are secret. The tag differs from that of the `redis` backend: each
 * backend takes the locks of the other for those of another client.
 */
export function ownerText(attempt: string, session: string): string {
  return `hfr1|${attempt}|${session}|`
}

/**
 * A grant is known by its votes: for each node, which process it was and its time of the grant. A late copy of the request,
 * after the lock was deleted, gets another time (T84, late duplicates).
 */
export function grantIdOf(
  votes: readonly { readonly runId: string | null; readonly grantedAt: string }[],
): string {
  return votes.map(({ runId, grantedAt }) => `${runId}:${grantedAt}`).join(',')
}

/** Two majorities have a node in common: if it says the same of both, they are one grant. */
export function sharesVote(one: string, other: string): boolean {
  const votes = new Set(one.split(','))
  return other.split(',').some((vote) => votes.has(vote))
}

/** When this process made the grant; empty if it did not vote for it, or has started since. */
export function grantedAtBy(runId: string | null, grantId: string): string {
  const vote = grantId.split(',').find((each) => each.startsWith(`${runId}:`))
  return vote?.slice(vote.indexOf(':') + 1) ?? ''
}

/** Details of a lock beyond its owner, for operators. */
export interface Details {
  readonly holder: string
  readonly note?: string | undefined
  readonly owner?: string | undefined
  /** The TTL of the session. */
  readonly ttlMs: number
}

export interface HeldLock extends Details {
  readonly kind: 'held'
  readonly attempt: string
  readonly session: string
  readonly lockDelayMs: number
  readonly grantedAtMs: number
}

export type LockRecord =
  | HeldLock
  /** Kept closed after an early release. */
  | { readonly kind: 'closed' }
  /** Set by another client of Redlock, or by something else. */
  | { readonly kind: 'foreign' }

export function parseLock(value: string): LockRecord {
  if (value === 'hfr1|closed') return { kind: 'closed' }
  const [, attempt, session, delay, seconds, microseconds, details] =
    /^hfr1\|([^|]+)\|([^|]+)\|(\d+)\|(\d+)\.(\d+)\|(.*)$/s.exec(value) ?? []
  if (attempt === undefined || session === undefined || details === undefined) return { kind: 'foreign' }
  return {
    kind: 'held',
    attempt,
    session,
    lockDelayMs: Number(delay),
    grantedAtMs: Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000),
    ...(JSON.parse(details) as Details),
  }
}
