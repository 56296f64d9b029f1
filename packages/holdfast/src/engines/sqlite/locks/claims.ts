/**
 * What a session does with its claims, each as a step inside a transaction. What may go wrong between the steps:
 *
 *   acquire    send · begin · judge · insert · commit · answer
 *              crash before the commit: nothing happened. Crash or lost answer after it: the claim is the session's and
 *              ends with it; asked again, the attempt finds its own row and the same token. A pause anywhere: `since`
 *              is older than the session's last prolongation, so belief ends first.
 *   keepAlive  send · begin · prolong · commit · answer
 *              the row's new end counts from inside the transaction, belief from before it was sent.
 *   release    delete · promote · commit · wake
 *              one transaction: there is no moment in which the name is free and the first waiter does not have it.
 *              Crash before the wake-up: the successor holds the name and finds out at its next look.
 *   abandon    mark · delete · promote · commit
 *              a late request meets the mark; the mark goes only together with the session (T73).
 */
import assert from 'node:assert/strict'
import { CapacityMismatchError, type LossReason } from '../../../base/errors.ts'
import { compareClaims } from '../../../kit/session.ts'
import type { AcquireRequest, Claim, GrantedClaim, ListedClaims, LostClaim } from '../../../spi.ts'
import { unavailable } from './failures.ts'
import { catchUp, promote, promoteAll, removeSession } from './queue.ts'
import type { Situation } from './statements.ts'
import { drawToken } from './tokens.ts'
import type { Transaction } from './transaction.ts'

/** Whose claims these are. */
export interface Owner {
  readonly namespace: string
  /** The session's row. Numbers are never used again. */
  readonly session: number
}

/** A grant as the file knows it; the session adds since when it may be believed. */
export interface Granted {
  readonly kind: 'granted'
  readonly token: bigint
  readonly data: string | null
}

export type Admission =
  | Granted
  | { readonly kind: 'busy'; readonly retryAfterMs?: number }
  | { readonly kind: 'session-gone' }

export type Queueing = Granted | { readonly kind: 'session-gone' | 'queue-full' | 'waiting' }

export function tryAcquire(tx: Transaction, owner: Owner, request: AcquireRequest): Admission {
  const situation = judge(tx, owner, request)
  if (situation === null) return { kind: 'session-gone' }
  if (situation.ended === 1) return { kind: 'busy' }
  const granted = admit(tx, owner, request, situation)
  if (granted !== null) return granted
  const { closed_until } = situation
  return closed_until === null ? { kind: 'busy' } : { kind: 'busy', retryAfterMs: closed_until - tx.nowMs }
}

export function enqueue(
  tx: Transaction,
  owner: Owner,
  request: AcquireRequest,
  address: () => string | null,
): Queueing {
  const situation = judge(tx, owner, request)
  if (situation === null) return { kind: 'session-gone' }
  if (situation.ended === 1) throw unavailable('the attempt was abandoned', 'not-applied')
  const granted = admit(tx, owner, request, situation)
  if (granted !== null) return granted
  if (situation.queued === 0) {
    if (isQueueFull(tx, owner, request)) return { kind: 'queue-full' }
    tx.sql.insertWaiter.run(...columnsOf(tx, owner, request), address(), request.owner ?? null)
  }
  return { kind: 'waiting' }
}

/** All waiters that there are live: `judge` has removed the others. */
function isQueueFull(tx: Transaction, { namespace }: Owner, { name, maxWaiters }: AcquireRequest): boolean {
  if (maxWaiters === undefined) return false
  return maxWaiters === 0 || tx.sql.hasMoreWaiters.first(namespace, name, maxWaiters - 1) !== undefined
}

/** Everything that decides, as it is once all that is due by now has been done. Null: the session is gone. */
function judge(tx: Transaction, { namespace, session }: Owner, { name, attempt }: Claim): Situation | null {
  let situation = tx.sql.situation.first(namespace, name, session, attempt)
  if (situation !== undefined && situation.due <= tx.nowMs) {
    catchUp(tx, situation.due)
    situation = tx.sql.situation.first(namespace, name, session, attempt)
  }
  return situation?.alive === 1 ? situation : null
}

/** Null: not now. */
function admit(tx: Transaction, owner: Owner, request: AcquireRequest, situation: Situation): Granted | null {
  const { name, weight, capacity } = request
  const { data } = situation
  if (situation.holds === 1) return grantOf(tx, owner, request)
  // A waiter keeps its position, whatever has become of the capacity. If it were due, it would hold by now.
  if (situation.queued === 1) return null
  if (situation.capacity !== null && situation.capacity !== capacity)
    throw new CapacityMismatchError(name, capacity, situation.capacity)
  const isClosed = situation.closed_until !== null
  if (isClosed || situation.waited_for === 1 || situation.held + weight > capacity) return null
  tx.tokens ??= { next: situation.next_token, reserved: situation.reserved_token }
  const token = drawToken(tx)
  tx.sql.insertHolder.run(...columnsOf(tx, owner, request), token, data, request.owner ?? null)
  return { kind: 'granted', token, data }
}

/** What a holder and a waiter have in common. */
function columnsOf({ nowMs }: Transaction, { namespace, session }: Owner, request: AcquireRequest) {
  const { name, attempt, mode, weight, capacity, lockDelayMs, note = null } = request
  return [namespace, name, attempt, session, mode, weight, capacity, lockDelayMs, nowMs, note] as const
}

/** What the attempt was granted before. */
function grantOf(tx: Transaction, owner: Owner, claim: Claim): Granted {
  const found = tx.sql.grantOf.first(owner.namespace, claim.name, claim.attempt, owner.session)
  assert(found !== undefined, 'the transaction has just seen it')
  return { kind: 'granted', token: BigInt(found.token), data: found.data }
}

export function release(
  tx: Transaction,
  { namespace, session }: Owner,
  { name, attempt, grantId }: GrantedClaim,
  keepForMs: number,
): 'released' | 'not-held' {
  const released = tx.sql.release.first(namespace, name, attempt, session, tx.nowMs, Number(grantId))
  if (released === undefined) return 'not-held'
  if (keepForMs > 0) tx.sql.close.run(namespace, name, released.capacity, tx.nowMs + keepForMs)
  if (released.waited_for === 1) {
    catchUp(tx)
    promote(tx, namespace, name)
  }
  return 'released'
}

export function abandon(tx: Transaction, { namespace, session }: Owner, { name, attempt }: Claim): void {
  catchUp(tx)
  if (tx.sql.isAlive.first(session) === undefined) return
  tx.sql.markAbandoned.run(session, attempt)
  const held = tx.sql.deleteHolder.run(namespace, name, attempt, session)
  const waited = tx.sql.deleteWaiter.run(namespace, name, attempt, session)
  if (held + waited > 0) promote(tx, namespace, name)
}

export function setData(
  tx: Transaction,
  { namespace, session }: Owner,
  { name, attempt, grantId }: GrantedClaim,
  data: string,
): 'stored' | 'not-held' {
  const { sql, nowMs } = tx
  if (sql.setData.run(namespace, name, attempt, session, nowMs, data, Number(grantId)) === 0)
    return 'not-held'
  sql.logData.run(namespace, name, attempt)
  return 'stored'
}

export interface Kept {
  readonly lost: readonly LostClaim[]
  readonly granted: readonly (Claim & Granted)[]
  readonly unlisted: readonly Claim[]
}

/** Two statements for all claims, however many; more only if the session has others than it thinks. Null: gone. */
export function keepAlive(tx: Transaction, owner: Owner, listed: ListedClaims): Kept | null {
  const { session } = owner
  if (tx.sql.prolong.run(session, tx.nowMs) === 0) return null
  const found = tx.sql.claimsOf
    .all(session)
    .map(({ name, attempt, token }) => ({ name, attempt, grantId: token === null ? null : String(token) }))
  const { lost, granted, unlisted } = compareClaims(listed, found)
  return {
    lost: lost.map((claim) => whyLost(tx, owner, claim)),
    granted: granted.map((claim) => ({ ...claim, ...grantOf(tx, owner, claim) })),
    unlisted,
  }
}

function whyLost(tx: Transaction, { namespace, session }: Owner, { name, attempt }: Claim): LostClaim {
  const lost = (reason: LossReason) => ({ attempt, reason })
  const mark = tx.sql.markOf.first(session, attempt)
  if (mark?.kind === 'force-released') return { ...lost('force-released'), detail: mark.detail }
  // The attempt was granted once more, under another token: the listed grant was deleted before (T84).
  if (tx.sql.grantOf.first(namespace, name, attempt, session) !== undefined) return lost('deleted')
  const { held, capacity } = tx.sql.heldWeight.first(namespace, name) ?? { held: 0, capacity: null }
  // What the claim weighed is gone with it; no claim weighs less than 1.
  return lost(capacity !== null && held + 1 > capacity ? 'taken-over' : 'deleted')
}

export function closeSession(tx: Transaction, { session }: Owner): void {
  catchUp(tx)
  promoteAll(tx, removeSession(tx, session))
}
