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
import { CapacityMismatchError, type LossReason } from '../../base/errors.ts'
import type { AcquireRequest, Claim, GrantedClaim, ListedClaims, LostClaim } from '../../spi.ts'
import { unavailable } from './failures.ts'
import { catchUp, promote, removeSession, TouchedNames } from './queue.ts'
import type { Situation } from './statements.ts'
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

export type Queueing = Granted | { readonly kind: 'session-gone' } | { readonly kind: 'queue-full' }

export function tryAcquire(tx: Transaction, owner: Owner, request: AcquireRequest): Admission {
  const situation = judge(tx, owner, request)
  if (situation === null) return { kind: 'session-gone' }
  if (situation.ended === 1) return { kind: 'busy' }
  return admit(tx, owner, request, situation) ?? busy(tx, situation)
}

/** Null: it is queued, and has to wait for its grant. */
export function enqueue(
  tx: Transaction,
  owner: Owner,
  request: AcquireRequest,
  address: () => string | null,
): Queueing | null {
  const situation = judge(tx, owner, request)
  if (situation === null) return { kind: 'session-gone' }
  if (situation.ended === 1) throw unavailable('the attempt was abandoned', 'not-applied')
  const granted = admit(tx, owner, request, situation)
  if (granted !== null || situation.position !== null) return granted
  if (isQueueFull(tx, owner, request)) return { kind: 'queue-full' }
  const { name, attempt, mode, weight, capacity, lockDelayMs, note = null } = request
  const common = [mode, weight, capacity, lockDelayMs, tx.nowMs, note] as const
  const { namespace, session } = owner
  const label = request.owner ?? null
  tx.sql.insertWaiter.run(namespace, name, attempt, session, ...common, address(), label)
  tx.log.append('waiting', { namespace, name, attempt, session, owner: label, token: null })
  return null
}

/** All waiters that there are live: `judge` has removed the others. */
function isQueueFull(tx: Transaction, { namespace }: Owner, { name, maxWaiters }: AcquireRequest): boolean {
  if (maxWaiters === undefined) return false
  return maxWaiters === 0 || tx.sql.hasMoreWaiters.first(namespace, name, maxWaiters - 1) !== undefined
}

/** Everything that decides, as it is once all that is due by now has been done. Null: the session is gone. */
function judge(tx: Transaction, owner: Owner, { name, attempt }: Claim): Situation | null {
  const look = () => tx.sql.situation.first(owner.namespace, name, owner.session, attempt)
  let situation = look()
  const dueMs = Math.min(situation?.first_expiry ?? Infinity, situation?.closed_until ?? Infinity)
  if (dueMs <= tx.nowMs) {
    catchUp(tx)
    situation = look()
  }
  if (situation === undefined || situation.alive_until === null) return null
  tx.tokens.know(situation.next_token, situation.reserved_token)
  tx.log.know(situation.watched_until)
  return situation
}

/** Null: not now. */
function admit(tx: Transaction, owner: Owner, request: AcquireRequest, situation: Situation): Granted | null {
  const { name, attempt, mode, weight, capacity, lockDelayMs, note = null } = request
  const { namespace, session } = owner
  if (situation.holds === 1) return grantOf(tx, owner, request)
  // A waiter keeps its position, whatever has become of the capacity. If it were due, it would hold by now.
  if (situation.position !== null) return null
  if (situation.capacity !== null && situation.capacity !== capacity)
    throw new CapacityMismatchError(name, capacity, situation.capacity)
  const isClosed = situation.closed_until !== null
  if (isClosed || situation.waited_for === 1 || situation.held + weight > capacity) return null
  const token = tx.drawToken()
  const common = [mode, weight, capacity, lockDelayMs, tx.nowMs, note] as const
  const label = request.owner ?? null
  tx.sql.insertHolder.run(namespace, name, attempt, session, token, ...common, situation.data, label)
  tx.log.append('acquired', { namespace, name, attempt, session, owner: label, token })
  return { kind: 'granted', token, data: situation.data }
}

function busy(tx: Transaction, { closed_until }: Situation): Admission {
  return closed_until === null ? { kind: 'busy' } : { kind: 'busy', retryAfterMs: closed_until - tx.nowMs }
}

/** What the attempt was granted before. */
function grantOf(tx: Transaction, owner: Owner, claim: Claim): Granted {
  const found = tx.sql.grantOf.first(owner.namespace, claim.name, claim.attempt, owner.session)
  assert(found !== undefined, 'the transaction has just seen it')
  return { kind: 'granted', token: found.token, data: found.data }
}

export function release(
  tx: Transaction,
  owner: Owner,
  { name, attempt, grantId }: GrantedClaim,
  keepForMs: number,
): 'released' | 'not-held' {
  const { namespace, session } = owner
  const token = BigInt(grantId)
  const [released] = tx.sql.release.all(namespace, name, attempt, session, tx.nowMs, token)
  if (released === undefined) return 'not-held'
  tx.log.know(released.watched_until)
  tx.log.append('released', { namespace, name, attempt, session, owner: released.owner, token })
  if (keepForMs > 0) tx.sql.close.run(namespace, name, released.capacity, tx.nowMs + keepForMs)
  if (released.waited_for === 1) makeRoom(tx, owner, name)
  return 'released'
}

export function abandon(tx: Transaction, owner: Owner, { name, attempt }: Claim): void {
  const { namespace, session } = owner
  if (tx.sql.isAlive.first(session, tx.nowMs) === undefined) return
  tx.sql.mark.run(session, attempt, 'abandoned', null)
  const claim = { namespace, name, attempt, session }
  const [held] = tx.sql.deleteHolder.all(namespace, name, attempt, session)
  if (held !== undefined) tx.log.append('released', { ...claim, ...held })
  const [waited] = tx.sql.deleteWaiter.all(namespace, name, attempt, session)
  if (waited !== undefined) tx.log.append('gave-up', { ...claim, ...waited, token: null })
  if (held !== undefined || waited !== undefined) makeRoom(tx, owner, name)
}

/** After something has left a name. */
function makeRoom(tx: Transaction, { namespace }: Owner, name: string): void {
  catchUp(tx)
  promote(tx, namespace, name)
}

export function setData(
  tx: Transaction,
  { namespace, session }: Owner,
  { name, attempt, grantId }: GrantedClaim,
  data: string,
): 'stored' | 'not-held' {
  const token = BigInt(grantId)
  const [stored] = tx.sql.setData.all(namespace, name, attempt, session, tx.nowMs, data, token)
  if (stored === undefined) return 'not-held'
  tx.log.know(stored.watched_until)
  tx.log.append('data', { namespace, name, attempt, session, owner: stored.owner, token })
  return 'stored'
}

export interface Kept {
  readonly lost: readonly LostClaim[]
  readonly granted: readonly (Claim & Granted)[]
  readonly unlisted: readonly Claim[]
}

/** One statement for all claims, however many; more only if the session has others than it thinks. Null: gone. */
export function keepAlive(tx: Transaction, owner: Owner, claims: ListedClaims): Kept | null {
  const { sql } = tx
  const { namespace, session } = owner
  const listed = [...claims.held, ...claims.waiting]
  const [kept] = sql.keepAlive.all(session, tx.nowMs, asList(listed), namespace)
  catchUp(tx)
  if (kept === undefined) return null
  const missing = new Set(JSON.parse(kept.missing) as number[])
  const found = listed.filter((_, index) => !missing.has(index))
  const lostClaims = listed.filter((_, index) => missing.has(index)).map((claim) => lost(tx, owner, claim))
  return {
    lost: lostClaims,
    granted: claims.waiting.length === 0 ? [] : turnsOf(tx, owner, claims.waiting),
    unlisted: kept.claims === found.length ? [] : unlisted(tx, owner, found),
  }
}

function unlisted(tx: Transaction, { session }: Owner, found: readonly Claim[]): Claim[] {
  const attempts = JSON.stringify(found.map(({ attempt }) => attempt))
  return tx.sql.unlisted.all(session, attempts).map(({ name, attempt }) => ({ name, attempt }))
}

/** Claims as the statements take them. */
function asList(claims: readonly (Claim | GrantedClaim)[]): string {
  return JSON.stringify(
    claims.map((claim) => [claim.name, claim.attempt, 'grantId' in claim ? claim.grantId : null]),
  )
}

function lost(tx: Transaction, owner: Owner, claim: Claim): LostClaim {
  const { attempt } = claim
  const mark = tx.sql.markOf.first(owner.session, attempt)
  if (mark?.kind !== 'force-released') return { attempt, reason: whyLost(tx, owner, claim) }
  return { attempt, reason: 'force-released', ...(mark.detail !== null && { detail: mark.detail }) }
}

function whyLost(tx: Transaction, { namespace, session }: Owner, { name, attempt }: Claim): LossReason {
  // The attempt was granted once more, under another token: the listed grant was deleted before (T84).
  if (tx.sql.grantOf.first(namespace, name, attempt, session) !== undefined) return 'deleted'
  const { held, capacity } = tx.sql.heldWeight.first(namespace, name) ?? { held: 0, capacity: null }
  // What the claim weighed is gone with it; no claim weighs less than 1.
  return capacity !== null && held + 1 > capacity ? 'taken-over' : 'deleted'
}

/** Those that hold by now although they were listed as waiting. */
function turnsOf(tx: Transaction, owner: Owner, waiting: readonly Claim[]): (Claim & Granted)[] {
  return tx.sql.turns
    .all(owner.namespace, owner.session, asList(waiting))
    .map(({ name, attempt, token, data }) => ({ kind: 'granted', name, attempt, token, data }))
}

export function closeSession(tx: Transaction, { session }: Owner): void {
  const touched = new TouchedNames()
  catchUp(tx)
  removeSession(tx, session, 'released', touched)
  for (const { namespace, name } of touched) promote(tx, namespace, name)
}
