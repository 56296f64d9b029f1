/** State of the engine: sessions, names, and the claims that tie the two together. */
import { publicIdOf } from '../../base/ids.ts'
import { claimState } from '../../kit/backend-kit.ts'
import type { Granted, NameKey, Owner } from '../../kit/rules.ts'
import type { StepWaiter } from '../../kit/step-session.ts'
import type { WaitingRoom } from '../../kit/waiting-room.ts'
import type { AcquireRequest, ClaimState, NameState, SessionState } from '../../spi.ts'
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
  readonly claims: Map<string, MemoryClaim>
  /** Attempts that can never land again; with an operator's reason, if they were released by force. */
  readonly marks: Map<string, string | null>
  /** The rooms of the clients that opened it or are attached to it. */
  readonly rooms: Set<Room>
}

/** Namespaces are separate worlds in one engine. No name and no id has a control character, so the key is unambiguous. */
export function keyOf(namespace: string, id: string): string {
  return `${namespace}\n${id}`
}

/** Its capacity is that of the name. */
export interface MemoryClaim
  extends Pick<AcquireRequest, 'name' | 'attempt' | 'mode' | 'weight' | 'lockDelayMs'>,
    Queued<MemoryClaim> {
  readonly note: string | undefined
  readonly owner: string | undefined
  readonly session: Session
  readonly record: NameRecord
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
  readonly holders = new Map<string, MemoryClaim>()
  held = 0
  readonly queue = new Queue<MemoryClaim>()
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

export function describeName(record: NameRecord, nowMs: number, holdersOnly = false): NameState {
  const { name, capacity, holders, queue, data, closedUntilMs } = record
  return {
    name,
    capacity,
    holders: Array.from(holders.values(), (claim) => ({
      ...describeClaim(claim),
      token: claim.token,
      heldForMs: nowMs - claim.sinceMs,
      expiresInMs: claim.session.expiresAtMs - nowMs,
    })),
    waiters: Array.from(holdersOnly ? [] : queue, (claim) => ({
      ...describeClaim(claim),
      waitingForMs: nowMs - claim.sinceMs,
    })),
    ...(data !== null && { data }),
    closedForMs: closedUntilMs === null ? 0 : Math.max(0, closedUntilMs - nowMs),
    atMs: nowMs,
  }
}

function describeClaim({ session, ...claim }: MemoryClaim): ClaimState {
  const { id, holder, ttlMs } = session
  return claimState({ ...claim, id: publicIdOf(claim.attempt), holder, session: publicIdOf(id), ttlMs })
}

export function describeSession({ id, holder, ttlMs, expiresAtMs }: Session, nowMs: number): SessionState {
  return { id: publicIdOf(id), holder, ttlMs, expiresInMs: expiresAtMs - nowMs }
}
