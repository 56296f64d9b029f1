/** What the engine knows: sessions, names, and the claims that tie the two together. */
import { publicIdOf } from '../../base/ids.ts'
import { claimState } from '../../kit/backend-kit.ts'
import type { ClaimState, HolderState, Mode, NameState, SessionState, WaiterState } from '../../spi.ts'
import { Queue, type Queued } from './queue.ts'

export type Mark =
  | { readonly kind: 'abandoned' }
  | { readonly kind: 'force-released'; readonly detail: string }

export interface Session {
  readonly kind: 'session'
  readonly namespace: string
  readonly id: string
  readonly ttlMs: number
  /** The public label of its client. */
  readonly holder: string
  /** Dead from this moment on, also before it is removed. */
  expiresAtMs: number
  readonly claims: Map<string, Claim>
  /** Attempts that can never land again, and why. */
  readonly marks: Map<string, Mark>
}

/** Namespaces are separate worlds in one engine. No name and no id has a control character, so the key is unambiguous. */
export function keyOf(namespace: string, id: string): string {
  return `${namespace}\n${id}`
}

/**
 * waiting ──granted──▶ held         [NameTable.settle]   the token is drawn here
 * waiting | held ──▶ (gone)         [NameTable.remove]
 */
export interface Claim extends Queued<Claim> {
  readonly session: Session
  readonly record: NameRecord
  readonly name: string
  readonly attempt: string
  /** The half of the attempt that may be shown. */
  readonly publicId: string
  readonly mode: Mode
  readonly weight: number
  readonly note: string | undefined
  readonly owner: string | undefined
  readonly lockDelayMs: number
  /** Null while it waits. */
  token: bigint | null
  grantId: string | null
  /** Since when it has waited, or held. */
  sinceMs: number
  previousData: string | undefined
  /** Calls that wait for this claim's grant. */
  readonly listeners: Set<WaitListener>
}

/** How a wait ended. Listeners must not call the engine: it is in the middle of a step. */
export type WaitOutcome =
  | { readonly kind: 'granted'; readonly claim: Claim }
  | { readonly kind: 'session-gone' }
  | { readonly kind: 'abandoned' }

export type WaitListener = (outcome: WaitOutcome) => void

export interface NameRecord {
  readonly kind: 'name'
  readonly namespace: string
  readonly name: string
  capacity: number
  readonly holders: Map<string, Claim>
  heldWeight: number
  readonly queue: Queue<Claim>
  data: string | undefined
  /** Closed until then, by a lock-delay or a hold-at-least. */
  closedUntilMs: number
}

export function newName(namespace: string, name: string, capacity: number): NameRecord {
  return {
    kind: 'name',
    namespace,
    name,
    capacity,
    holders: new Map(),
    heldWeight: 0,
    queue: new Queue(),
    data: undefined,
    closedUntilMs: Number.NEGATIVE_INFINITY,
  }
}

export function isInUse(record: NameRecord): boolean {
  return record.holders.size > 0 || record.queue.length > 0
}

export function describeName(record: NameRecord, nowMs: number, holdersOnly = false): NameState {
  return {
    name: record.name,
    capacity: record.capacity,
    holders: [...record.holders.values()].map((claim) => describeHolder(claim, nowMs)),
    waiters: holdersOnly ? [] : [...record.queue].map((claim) => describeWaiter(claim, nowMs)),
    ...(record.data === undefined ? {} : { data: record.data }),
    closedForMs: Math.max(0, record.closedUntilMs - nowMs),
    atMs: nowMs,
  }
}

function describeHolder(claim: Claim, nowMs: number): HolderState {
  return {
    ...describeClaim(claim),
    token: claim.token,
    heldForMs: nowMs - claim.sinceMs,
    expiresInMs: claim.session.expiresAtMs - nowMs,
  }
}

function describeWaiter(claim: Claim, nowMs: number): WaiterState {
  return { ...describeClaim(claim), waitingForMs: nowMs - claim.sinceMs }
}

function describeClaim({ publicId, session, ...claim }: Claim): ClaimState {
  const { id, holder, ttlMs } = session
  return claimState({ ...claim, id: publicId, holder, session: publicIdOf(id), ttlMs })
}

export function describeSession({ id, holder, ttlMs, expiresAtMs }: Session, nowMs: number): SessionState {
  return { id: publicIdOf(id), holder, ttlMs, expiresInMs: expiresAtMs - nowMs }
}
