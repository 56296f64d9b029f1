/**
 * The rules of a name, for engines that change their state in one atomic step (memory, sqlite): who is granted, who
 * waits, what ends with time, and the answers to keep-alives and operators. The engine brings a `Step`, its rows.
 *
 *   (none) ──there is room──▶ held                         [tryAcquire, enqueue]
 *   (none) ──there is none──▶ waiting ──room──▶ held       [enqueue] [promote]
 *   waiting | held ──▶ (none)                              [release, abandon, closeSession, expire, forceRelease]
 *
 * One rule serves all modes: a claim is granted when it is first in the queue, the name is not closed, and the holders'
 * weights leave room (G1, G8). The token is drawn in the step of the grant (T37, tokens drawn apart), and a name that becomes
 * free goes to the next waiter in the same step (G9). A rule that decides does first what is due: `expire` removes all dead
 * sessions, with their holders and waiters, before anybody is served, so a dead waiter is granted nothing (T20, dead waiters).
 * A rule that throws has written nothing else.
 */
import { BackendUnavailableError, CapacityMismatchError } from '../base/errors.ts'
import type {
  AcquireRequest,
  CapacityChange,
  Claim,
  ForgetResult,
  GrantedClaim,
  ListedClaims,
  LostClaim,
  ReleaseResult,
  ResizeResult,
} from '../spi.ts'
import { operatorCallExpired } from './backend-kit.ts'
import { compareClaims, type FoundClaim } from './session.ts'

/** SQL has no booleans. */
type Flag = boolean | 0 | 1

/** A session. An engine may keep more in it. */
export interface Owner {
  readonly namespace: string
  /** Tells it from every other session of the engine. */
  readonly id: string | number
}

export interface NameKey {
  readonly namespace: string
  readonly name: string
}

/** A name as it is in this step. */
export interface NameSituation {
  /** The sum of the holders' weights. */
  readonly held: number
  /** Null: there are no holders and no waiters. */
  readonly capacity: number | null
  readonly isWaitedFor: Flag
  /** By a lock-delay or a hold-at-least. */
  readonly closedUntilMs: number | null
  readonly data: string | null
}

/** All that decides about one attempt on one name. */
export interface Situation extends NameSituation {
  /** When time alone will next change something in the engine. */
  readonly dueMs: number
  readonly isAlive: Flag
  /** A mark says that this attempt can never land again. */
  readonly isMarked: Flag
  readonly holds: Flag
  readonly waits: Flag
}

/** A grant as the engine has it; the session adds since when it may be believed. */
export interface Granted {
  readonly token: bigint
  /** Default: the token as text. */
  readonly grantId?: string
  /** The data that the name carried when this was granted. */
  readonly data: string | null
}

export interface FirstWaiter {
  readonly weight: number
}

export type Ending = 'released' | 'expired'

/**
 * The rows of an engine within one atomic step. Each method is one look or one change, and tells the event that stands
 * beside it, if the engine has a log. After an error of such a method nothing of the whole step may stay. It must not be a
 * HoldfastError: with those a rule refuses one work of the step (`StepWork`).
 */
export interface Step<O extends Owner = Owner> {
  /** The backend's name, for errors. */
  readonly backend: string
  /** Read on the engine's clock when no other step could come in between any more. */
  readonly nowMs: number
  /** Hooks that run when the step has been applied, before anyone is told of it; also if it has written nothing. */
  readonly afterCommit: { push(hook: () => void): unknown }

  dueMs(): number
  look(owner: O, claim: Claim): Situation
  lookAt(name: NameKey): NameSituation
  firstWaiter(name: NameKey): FirstWaiter | undefined
  /** The largest weight in the queue; 0 if it is empty. */
  heaviestWaiter(name: NameKey): number
  hasWaiters(name: NameKey, atLeast: number): boolean
  /** Undefined: the attempt does not hold. */
  grantOf(owner: O, claim: Claim): Granted | undefined
  claimsOf(owner: O): Iterable<FoundClaim>
  /** An operator's reason, if the attempt was released by force. */
  forcedBecause(owner: O, attempt: string): string | undefined

  /**
   * Draws a token. `acquired`. Here and in `insertWaiter` the request's capacity becomes that of the name: the rules have checked that
   * it is the same, or that the name has no claims (it carries data, or is closed) and may have another.
   */
  insertHolder(owner: O, request: AcquireRequest, data: string | null): Granted
  /** Last in the queue. `waiting` */
  insertWaiter(owner: O, request: AcquireRequest): void
  /** Makes the waiter that `firstWaiter` returned a holder, and tells it. `acquired` */
  promote(name: NameKey, waiter: FirstWaiter, data: string | null): void
  /** Only this grant, and only while its session's time is not up; undefined if there is none. `released` */
  deleteHolder(
    owner: O,
    claim: GrantedClaim,
  ): { readonly capacity: number; readonly isWaitedFor: Flag } | undefined
  /** Whatever the attempt has; false if it has nothing. `released` or `gave-up` */
  deleteClaim(owner: O, claim: Claim): boolean
  /** The holders with these public ids. Each attempt gets a mark with the reason. Returns their number. `force-released` */
  deleteForced(name: NameKey, ids: readonly string[], reason: string): number
  markAbandoned(owner: O, attempt: string): void
  /** False: the session is gone. */
  prolong(owner: O): boolean
  /** Sessions whose time is up. */
  expiredSessions(): readonly O[]
  /**
   * Removes a session with its claims and marks, and returns the names on which there may be room now. What an expired
   * session held is closed for the lock-delay, from the end of the session's time. `released` or `expired`, `gave-up`
   */
  deleteSession(owner: O, ending: Ending): readonly NameKey[]
  /**
   * A name that is closed for longer already stays so. `capacity`: that of the claim that has ended, to be shown while the name has
   * no claims; it binds no request.
   */
  close(name: NameKey, capacity: number, untilMs: number): void
  /** Opens the names whose closing is over. What else is due, of the engine's own, is done here. */
  openNames(): readonly NameKey[]
  /** As `deleteHolder` judges; false if there is no such grant. `data` */
  putData(owner: O, claim: GrantedClaim, data: string): boolean
  dropData(name: NameKey): void
  /** Of all its holders and waiters. */
  putCapacity(name: NameKey, capacity: number): void
}

export type Admission =
  | ({ readonly kind: 'granted' } & Granted)
  | { readonly kind: 'busy'; readonly retryAfterMs?: number }
  | { readonly kind: 'session-gone' }

export type Queueing =
  | ({ readonly kind: 'granted' } & Granted)
  | { readonly kind: 'session-gone' | 'queue-full' | 'waiting' }

export function tryAcquire(step: Step, owner: Owner, request: AcquireRequest): Admission {
  const situation = judge(step, owner, request)
  if (!situation.isAlive) return { kind: 'session-gone' }
  if (situation.isMarked) return { kind: 'busy' }
  const granted = admit(step, owner, request, situation)
  if (granted !== undefined) return { kind: 'granted', ...granted }
  const { closedUntilMs } = situation
  return closedUntilMs === null
    ? { kind: 'busy' }
    : { kind: 'busy', retryAfterMs: closedUntilMs - step.nowMs }
}

export function enqueue(step: Step, owner: Owner, request: AcquireRequest): Queueing {
  const situation = judge(step, owner, request)
  if (!situation.isAlive) return { kind: 'session-gone' }
  if (situation.isMarked)
    throw new BackendUnavailableError(step.backend, 'the attempt was abandoned', 'not-applied')
  const granted = admit(step, owner, request, situation)
  if (granted !== undefined) return { kind: 'granted', ...granted }
  if (!situation.waits) {
    const { maxWaiters } = request
    const name = nameOf(owner, request)
    if (maxWaiters === 0 || (maxWaiters !== undefined && step.hasWaiters(name, maxWaiters)))
      return { kind: 'queue-full' }
    step.insertWaiter(owner, request)
  }
  return { kind: 'waiting' }
}

/** The situation when all that is due has been done. */
function judge(step: Step, owner: Owner, claim: Claim): Situation {
  const situation = step.look(owner, claim)
  if (situation.dueMs > step.nowMs) return situation
  expire(step, situation.dueMs)
  return step.look(owner, claim)
}

/** Undefined: not now. Asked again, an attempt gets what it was granted, or keeps its position. */
function admit(step: Step, owner: Owner, request: AcquireRequest, situation: Situation): Granted | undefined {
  const { name, weight, capacity } = request
  const { held, closedUntilMs, isWaitedFor, data } = situation
  if (situation.holds) return step.grantOf(owner, request)
  if (situation.waits) return undefined
  if (situation.capacity !== null && situation.capacity !== capacity)
    throw new CapacityMismatchError(name, capacity, situation.capacity)
  const hasRoom = closedUntilMs === null && !isWaitedFor && held + weight <= capacity
  return hasRoom ? step.insertHolder(owner, request, data) : undefined
}

/** `keepForMs`: a hold-at-least, the name stays closed for that long. */
export function release(step: Step, owner: Owner, claim: GrantedClaim, keepForMs: number): ReleaseResult {
  const released = step.deleteHolder(owner, claim)
  if (released === undefined) return 'not-held'
  const name = nameOf(owner, claim)
  if (keepForMs > 0) step.close(name, released.capacity, step.nowMs + keepForMs)
  if (released.isWaitedFor) {
    expire(step)
    promote(step, name)
  }
  return 'released'
}

/** A late request meets the mark, which goes only together with the session (T73, late originals). */
export function abandon(step: Step, owner: Owner, claim: Claim): void {
  if (!judge(step, owner, claim).isAlive) return
  step.markAbandoned(owner, claim.attempt)
  if (step.deleteClaim(owner, claim)) promote(step, nameOf(owner, claim))
}

export function setData(step: Step, owner: Owner, claim: GrantedClaim, data: string): 'stored' | 'not-held' {
  return step.putData(owner, claim, data) ? 'stored' : 'not-held'
}

export interface Kept {
  readonly lost: readonly LostClaim[]
  readonly granted: readonly (Claim & Granted)[]
  readonly unlisted: readonly Claim[]
}

/** Null: the session is gone, and nothing brings it back (T31, revived locks). The caller has done what is due. */
export function keepAlive(step: Step, owner: Owner, listed: ListedClaims): Kept | null {
  if (!step.prolong(owner)) return null
  const { lost, granted, unlisted } = compareClaims(listed, step.claimsOf(owner))
  return {
    lost: lost.map((claim) => whyLost(step, owner, claim)),
    granted: granted.flatMap(({ name, attempt }) => {
      const found = step.grantOf(owner, { name, attempt })
      return found === undefined ? [] : { name, attempt, ...found }
    }),
    unlisted,
  }
}

function whyLost(step: Step, owner: Owner, claim: Claim): LostClaim {
  const { attempt } = claim
  const detail = step.forcedBecause(owner, attempt)
  if (detail !== undefined) return { attempt, reason: 'force-released', detail }
  const { holds, held, capacity } = step.look(owner, claim)
  // An attempt that holds was granted once more, under another id: the listed grant was deleted before (T84, late duplicates).
  // The weight of the lost claim is gone with it; no claim weighs less than 1.
  const isFull = capacity !== null && held + 1 > capacity
  return { attempt, reason: isFull && !holds ? 'taken-over' : 'deleted' }
}

export function closeSession(step: Step, owner: Owner): void {
  expire(step)
  promoteAll(step, step.deleteSession(owner, 'released'))
}

/** Does what is due: ends the sessions whose time is up, opens names, and grants what became free. */
export function expire(step: Step, dueMs = step.dueMs()): void {
  if (dueMs > step.nowMs) return
  const touched = step.expiredSessions().flatMap((owner) => step.deleteSession(owner, 'expired'))
  promoteAll(step, [...touched, ...step.openNames()])
}

/** When all that is dead has been removed: a dead waiter must not be granted anything. */
function promoteAll(step: Step, names: readonly NameKey[]): void {
  // No name contains a control character, so the key is unambiguous.
  const distinct = new Map(names.map((each) => [`${each.namespace}\n${each.name}`, each]))
  for (const name of distinct.values()) promote(step, name)
}

/** Grants the first waiters as long as they fit: one writer, or all readers up to the next writer. */
export function promote(step: Step, name: NameKey): void {
  let first = step.firstWaiter(name)
  if (first === undefined) return
  const { closedUntilMs, capacity, held, data } = step.lookAt(name)
  if (closedUntilMs !== null || capacity === null) return
  let room = capacity - held
  while (first !== undefined && first.weight <= room) {
    step.promote(name, first, data)
    room -= first.weight
    first = room > 0 ? step.firstWaiter(name) : undefined
  }
}

/** An operator's call that arrives late does nothing (T78, late operators). */
export interface OperatorTerms {
  readonly notAfterMs: number
}

function begin(step: Step, { notAfterMs }: OperatorTerms): void {
  if (step.nowMs >= notAfterMs) throw operatorCallExpired(step.backend)
  expire(step)
}

/** A claim that got the name in between is not hit (T74, misaimed force releases). */
export function forceRelease(
  step: Step,
  name: NameKey,
  ids: readonly string[],
  reason: string,
  terms: OperatorTerms,
): number {
  begin(step, terms)
  const released = step.deleteForced(name, ids, reason)
  if (released > 0) promote(step, name)
  return released
}

export function resize(
  step: Step,
  name: NameKey,
  { from, to }: CapacityChange,
  terms: OperatorTerms,
): ResizeResult {
  begin(step, terms)
  const { capacity, held } = step.lookAt(name)
  if (capacity !== from) return 'changed'
  if (Math.max(held, step.heaviestWaiter(name)) > to) return 'in-use'
  step.putCapacity(name, to)
  promote(step, name)
  return 'resized'
}

/** A name that is still closed stays so; its data goes all the same. */
export function forget(step: Step, name: NameKey, data: string, terms: OperatorTerms): ForgetResult {
  begin(step, terms)
  const found = step.lookAt(name)
  if (found.capacity !== null) return 'in-use'
  if (found.data !== data) return 'changed'
  step.dropData(name)
  return 'forgotten'
}

function nameOf({ namespace }: Owner, { name }: Claim): NameKey {
  return { namespace, name }
}
