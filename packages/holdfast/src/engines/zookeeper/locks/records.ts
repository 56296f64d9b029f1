/** Records: the data of nodes, and a name as its children tell it. */
import type { ClaimRecord, DataRecord, MarkRecord, SessionRecord } from '../../../kit/claim-records.ts'
import type { QueuedClaim, StoredClaim } from '../../../kit/stored-name.ts'
import type { Session, Stat } from '../client/index.ts'
import { type ClaimPath, tokenOf } from './keys.ts'

/** A claim whose node was read, or written here. `token`: of its last write, so one that waits has the token of its creation. */
export interface ZooKeeperClaim extends StoredClaim {
  readonly token: bigint
  /** Its session at ZooKeeper. */
  readonly owner: bigint
  /** 0: as it was created. It waits, or it was granted by its creation. 1: granted by a second write. */
  readonly version: number
}

/** `position`: of the write in its transaction. */
export function claimData(record: ClaimRecord, position: number): string {
  return JSON.stringify({ ...record, position })
}

export function foundClaim(path: ClaimPath, data: string, stat: Stat): ZooKeeperClaim {
  const { position = 0, ...record } = JSON.parse(data) as ClaimRecord & { readonly position?: number }
  const { version, mzxid, ephemeralOwner: owner } = stat
  return { ...path, record, owner, version, granted: version > 0, token: tokenOf(mzxid, position) }
}

/** The last claim of a name that was released, or given up, in its container. */
export interface EndedRecord {
  readonly id: string
  readonly holder: string
  readonly owner?: string
  /** Null: it was waiting. */
  readonly token: string | null
}

export function endedData({ id, granted, token, record }: ZooKeeperClaim): string {
  const { session, owner } = record
  const ended: EndedRecord = { id, holder: session.holder, token: granted ? String(token) : null }
  return JSON.stringify(owner === undefined ? ended : { ...ended, owner })
}

/** A claim of which the name of its node is known, and no more. It waits, or it holds by what is older than it. */
export function seenClaim(path: ClaimPath): QueuedClaim {
  return { ...path, granted: false, token: null }
}

/** `zooKeeper`: the id of the session there, as text. */
export interface StoredSession extends SessionRecord {
  readonly zooKeeper: string
}

export function sessionData({ id, holder }: SessionRecord, session: Session): string {
  const stored: StoredSession = { id, holder, ttlMs: session.timeoutMs, zooKeeper: String(session.id) }
  return JSON.stringify(stored)
}

/** Counts for claims that are older than `before`. */
export interface StoredCapacity {
  readonly capacity: number
  readonly before: number
}

export function parse<T extends DataRecord | EndedRecord | MarkRecord | StoredSession | StoredCapacity>(
  data: string,
): T {
  return JSON.parse(data) as T
}
