/** Records that engines store as they are given (etcd, ZooKeeper, Consul). They hold no secret. */
import type { AcquireRequest } from '../spi.ts'

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

/** The data cell, and which holder has stored it, for watchers. */
export interface DataRecord {
  readonly data: string
  readonly id: string
  readonly holder: string
  readonly owner?: string
  readonly token: string
}

/** Stands in the way of a late request for the attempt, or tells its session why the claim has ended. */
export interface MarkRecord {
  readonly reason: 'abandoned' | 'force-released'
  readonly detail?: string
}

export function claimRecord(
  { weight, capacity, note, owner }: AcquireRequest,
  session: SessionRecord,
  sinceMs: number,
): ClaimRecord {
  const facts = { session, weight, capacity, sinceMs: Math.round(sinceMs) }
  return { ...facts, ...(note !== undefined && { note }), ...(owner !== undefined && { owner }) }
}
