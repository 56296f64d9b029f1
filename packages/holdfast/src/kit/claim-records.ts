/** Claims as records, for engines that store what they are given (etcd, ZooKeeper, Consul), and what is shown of them. */
import { type AcquireRequest, type ClaimState, LOCK_CAPACITY, type Mode, type NameState } from '../spi.ts'
import { type ToldEvent, toldEvent } from './watching.ts'

export interface SessionRecord {
  /** The public half of its id. */
  readonly id: string
  readonly holder: string
  readonly ttlMs: number
}

/** `sinceMs`: when it was granted or began to wait, by the clock of its own client. */
export interface ClaimRecord {
  readonly session: SessionRecord
  readonly weight: number
  readonly capacity: number
  readonly sinceMs: number
  readonly note?: string
  readonly owner?: string
}

export function claimRecord(
  { weight, capacity, note, owner }: AcquireRequest,
  session: SessionRecord,
  sinceMs: number,
): ClaimRecord {
  const facts = { session, weight, capacity, sinceMs: Math.round(sinceMs) }
  return { ...facts, ...(note !== undefined && { note }), ...(owner !== undefined && { owner }) }
}

/** A claim that was found. `token` is null while it waits. */
export interface StoredClaim {
  readonly name: string
  readonly mode: Mode
  /** The public half of the attempt. */
  readonly id: string
  readonly token: bigint | null
  readonly record: ClaimRecord
}

export interface StoredName {
  readonly name: string
  /** In the order of the queue. */
  readonly claims: readonly StoredClaim[]
  readonly capacity: number | null
  readonly data: string | undefined
  readonly isClosed: boolean
}

/**
 * Null: nothing of it is in use. What is left of a holder's time, and for how long a name stays closed, only such an engine
 * itself knows.
 */
export function nameState(
  { claims, data, isClosed, ...stored }: StoredName,
  wallMs: number,
): NameState | null {
  if (claims.length === 0 && data === undefined && !isClosed) return null
  const atMs = Math.round(wallMs)
  const agoMs = ({ sinceMs }: ClaimRecord) => Math.max(0, atMs - sinceMs)
  return {
    name: stored.name,
    capacity: stored.capacity ?? LOCK_CAPACITY,
    holders: claims.flatMap((claim) => {
      const { token, record } = claim
      if (token === null) return []
      return [{ ...claimState(claim), token, heldForMs: agoMs(record), expiresInMs: record.session.ttlMs }]
    }),
    waiters: claims
      .filter(({ token }) => token === null)
      .map((claim) => ({ ...claimState(claim), waitingForMs: agoMs(claim.record) })),
    ...(data !== undefined && { data }),
    ...(!isClosed && { closedForMs: 0 }),
    atMs,
  }
}

function claimState({ id, mode, record }: StoredClaim): ClaimState {
  const { session, weight, note, owner } = record
  const shown = { id, holder: session.holder, mode, weight, session: session.id, ttlMs: session.ttlMs }
  return { ...shown, ...(owner !== undefined && { owner }), ...(note !== undefined && { note }) }
}

export function toldOf({ name, id, token, record }: StoredClaim, kind: ToldEvent['kind']): ToldEvent {
  const { session, owner } = record
  return toldEvent({ kind, name, id, holder: session.holder, owner, token })
}
