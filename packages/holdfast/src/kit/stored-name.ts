/**
 * A name as one read of the store has found it: who holds it, who waits, and what each waiter has to watch.
 *
 *   etcd                 a holder was written as granted, on condition that nothing older conflicts
 *   ZooKeeper, Consul    also a claim that was eligible when its key was created: a derived grant. Such a claim is never written
 *                        again, so whoever reads it derives the grant from its position in the queue.
 */
import type { ClaimState, HolderState, Mode, NameState } from '../spi.ts'
import { LOCK_CAPACITY } from '../spi.ts'
import { claimState } from './backend-kit.ts'
import type { ClaimRecord, DataRecord } from './claim-records.ts'
import { isEligible, type QueueEntry, type QueueView } from './ordered-store.ts'
import { type ToldEvent, toldEvent } from './watching.ts'

/** A claim, as far as the queue needs it. */
export interface QueuedClaim extends QueueEntry {
  readonly name: string
  readonly mode: Mode
  readonly attempt: string
  /** The public half of the attempt. */
  readonly id: string
  /** As the request asked for. */
  readonly capacity: number
  /** Null while it waits. With derived grants, a claim that was never granted by a write has the token of its creation. */
  readonly token: bigint | null
  /** A session needs that of its own claims only. */
  readonly record?: ClaimRecord
}

/** A claim's key and value, as operators see them. */
export interface StoredClaim extends QueuedClaim {
  readonly record: ClaimRecord
}

export interface NameFacts<C extends QueuedClaim> {
  /** The moment of the read: a revision or an index of the engine. Orders need to be comparable within one read only. */
  readonly version: bigint
  /** The claims, in any order. */
  readonly claims: readonly C[]
  /** Keys that keep the name closed (hold-at-least, lock-delay). */
  readonly closedBy?: readonly { readonly key: string; readonly order: bigint }[]
  /** How much longer the name is closed, where closing keys do not vanish by themselves. */
  readonly closedForMs?: number
  /** Each counts for claims that are older than it. The last one wins. */
  readonly capacities?: readonly { readonly order: bigint; readonly capacity: number }[]
  readonly capacityKey?: string
  readonly data?: DataRecord
  readonly derivesGrants?: boolean
  /** Versions that the store's later writes compare, under names of its own: a queue and a name hand them back. */
  readonly versions?: ReadonlyMap<string, bigint>
}

export class StoredName<C extends QueuedClaim = StoredClaim> {
  readonly version: bigint
  /** The claims in the order of the queue. */
  readonly claims: readonly C[]
  readonly data: DataRecord | undefined
  readonly versions: ReadonlyMap<string, bigint> | undefined
  readonly #facts: NameFacts<C>

  constructor(facts: NameFacts<C>) {
    this.#facts = facts
    this.version = facts.version
    this.claims = facts.claims.toSorted((a, b) => Number(a.order - b.order))
    this.data = facts.data
    this.versions = facts.versions
  }

  get isClosed(): boolean {
    return this.#closedBy.length > 0
  }

  /** Null for a name without claims. */
  get capacity(): number | null {
    const [oldest] = this.claims
    return oldest === undefined ? null : this.capacitySince(oldest.order, oldest.capacity)
  }

  /** The capacity by now, of a claim that was created with the given one. */
  capacitySince(order: bigint, capacity: number): number {
    const later = (this.#facts.capacities ?? []).filter((change) => change.order > order)
    return later.toSorted((a, b) => Number(a.order - b.order)).at(-1)?.capacity ?? capacity
  }

  claim(attempt: string): C | undefined {
    return this.claims.find((claim) => claim.attempt === attempt)
  }

  get holders(): readonly C[] {
    return this.claims.filter((claim) => claim.granted || (this.#facts.derivesGrants && this.#fits(claim)))
  }

  /** The queue as `own` sees it. `capacity`: as its request asked for. */
  queue(own: QueueEntry, asked: number): QueueView {
    const { capacityKey, closedForMs, versions } = this.#facts
    const capacity = this.capacitySince(own.order, asked)
    const closed = this.#closedBy.map(({ key }) => ({ key, order: 0n, weight: capacity, granted: true }))
    const older = [...closed, ...this.#before(own)]
    return {
      own,
      older,
      capacity,
      version: this.version,
      ...(capacityKey !== undefined && { capacityKey }),
      ...(versions !== undefined && { versions }),
      // Only the first in the queue looks when the name may be open again (G9).
      ...(closedForMs !== undefined && this.#isFirst(own, capacity) && { closedForMs }),
    }
  }

  /**
   * Null: nothing of the name is in use. In most engines the store does not know for how long a name stays closed. `leftMs`: how
   * much of a session's time is left, by the session's public id, where the engine was asked.
   */
  state(
    this: StoredName<C & StoredClaim>,
    name: string,
    wallMs: number,
    leftMs: ReadonlyMap<string, number> = new Map(),
  ): NameState | null {
    const { claims, data, isClosed } = this
    const { closedForMs } = this.#facts
    if (claims.length === 0 && data === undefined && !isClosed) return null
    const atMs = Math.round(wallMs)
    const agoMs = ({ sinceMs }: ClaimRecord) => Math.max(0, atMs - sinceMs)
    const holders = this.holders
    const waiters = claims.filter((claim) => !holders.includes(claim))
    return {
      name,
      capacity: this.capacity ?? LOCK_CAPACITY,
      holders: holders.map((claim): HolderState => {
        const { token, record } = claim
        const expiresInMs = leftMs.get(record.session.id)
        const times = { heldForMs: agoMs(record), ...(expiresInMs !== undefined && { expiresInMs }) }
        return { ...stateOf(claim), token, ...times }
      }),
      waiters: waiters.map((claim) => ({ ...stateOf(claim), waitingForMs: agoMs(claim.record) })),
      ...(data !== undefined && { data: data.data }),
      ...(!isClosed ? { closedForMs: 0 } : closedForMs !== undefined && { closedForMs }),
      atMs,
    }
  }

  get #closedBy() {
    return this.#facts.closedBy ?? []
  }

  #before({ order }: QueueEntry): readonly C[] {
    return this.claims.filter((claim) => claim.order < order)
  }

  #isFirst(own: QueueEntry, capacity: number): boolean {
    return isEligible({ own, older: this.#before(own), capacity, version: this.version })
  }

  /** A claim that was there before the name was closed may hold it still. One that disagrees on the capacity is about to leave. */
  #fits(claim: C): boolean {
    if (this.#closedBy.some(({ order }) => order < claim.order)) return false
    const capacity = this.capacitySince(claim.order, claim.capacity)
    return capacity === this.capacity && this.#isFirst(claim, capacity)
  }
}

function stateOf({ id, mode, record }: StoredClaim): ClaimState {
  const { id: session, holder, ttlMs } = record.session
  return claimState({ ...record, id, holder, mode, session, ttlMs })
}

export function toldOf(
  { name, id, token, record }: Pick<StoredClaim, 'name' | 'id' | 'token' | 'record'>,
  kind: ToldEvent['kind'],
): ToldEvent {
  const { session, owner } = record
  return toldEvent({ kind, name, id, holder: session.holder, owner, token })
}
