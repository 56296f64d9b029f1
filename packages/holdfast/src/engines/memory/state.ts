/** What the engine knows: sessions, names, and the claims that tie the two together. */
import { publicIdOf } from '../../base/ids.ts'
import { claimState } from '../../kit/backend-kit.ts'
import type { Granted, NameKey, NameSituation, Owner } from '../../kit/rules.ts'
import type { StepWaiter } from '../../kit/step-session.ts'
import type { WaitingRoom } from '../../kit/waiting-room.ts'
import type { ClaimState, HolderState, Mode, NameState, SessionState, WaiterState } from '../../spi.ts'
import { Queue, type Queued } from './queue.ts'

/** The waiters of one client. */
export type Room = WaitingRoom<StepWaiter<string>, Granted>

export interface Session extends Owner {
  readonly id: string
  readonly ttlMs: number
  /** The public label of its client. */
  readonly holder: string
  /** Dead from this moment on, also before it is removed. */
  expiresAtMs: number
  isOver: boolean
  readonly claims: Map<string, Claim>
  /** Attempts that can never land again; with an operator's reason, if they were released by force. */
  readonly marks: Map<string, string | null>
  /** The rooms of the clients that opened it or are attached to it. */
  readonly rooms: Set<Room>
}

/** Namespaces are separate worlds in one engine. No name and no id has a control character, so the key is unambiguous. */
export function keyOf(namespace: string, id: string): string {
  return `${namespace}\n${id}`
}

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
  /** The data that the name carried at the grant. */
  data: string | null
}

/** It exists while it is held or waited for, is closed, or carries data. */
export class NameRecord implements NameKey {
  readonly namespace: string
  readonly name: string
  capacity: number
  readonly holders = new Map<string, Claim>()
  held = 0
  readonly queue = new Queue<Claim>()
  data: string | null = null
  /** Closed until then, by a lock-delay or a hold-at-least. */
  closedUntilMs: number | null = null

  constructor({ namespace, name }: NameKey, capacity: number) {
    this.namespace = namespace
    this.name = name
    this.capacity = capacity
  }

  get isInUse(): boolean {
    return this.holders.size > 0 || this.queue.length > 0
  }
}

export function situationOf(record: NameRecord | undefined): NameSituation {
  if (record === undefined)
    return { held: 0, capacity: null, isWaitedFor: false, closedUntilMs: null, data: null }
  const { held, capacity, queue, closedUntilMs, data, isInUse } = record
  return { held, capacity: isInUse ? capacity : null, isWaitedFor: queue.length > 0, closedUntilMs, data }
}

export function grantOf({ token, grantId, data }: Claim): Granted | undefined {
  return token === null || grantId === null ? undefined : { token, grantId, data }
}

export function describeName(record: NameRecord, nowMs: number, holdersOnly = false): NameState {
  return {
    name: record.name,
    capacity: record.capacity,
    holders: [...record.holders.values()].map((claim) => describeHolder(claim, nowMs)),
    waiters: holdersOnly ? [] : [...record.queue].map((claim) => describeWaiter(claim, nowMs)),
    ...(record.data !== null && { data: record.data }),
    closedForMs: record.closedUntilMs === null ? 0 : Math.max(0, record.closedUntilMs - nowMs),
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
