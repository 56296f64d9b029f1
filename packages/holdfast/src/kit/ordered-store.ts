/**
 * The store that the predecessor queue needs: an engine with ordered keys and watches, and how a queue is read.
 *
 * A claim is a key of its session. Keys are ordered by their creation, so what is older than a key can only disappear. A
 * claim is eligible when it fits beside everything older, granted or not. Once true this stays true, as long as the
 * capacity is the same, and what is younger never overtakes what it has no room beside (G8).
 *
 * How engines fit:
 * - etcd: keys on the session's lease, ordered by create revision. `join` and `confirm` are one transaction each, with a range
 *   compare ("nothing older"); the token is its revision. A watch starts after the revision of the view.
 * - ZooKeeper: ephemeral sequential nodes, ordered by czxid. `confirm` writes the own node on condition of its version, after a
 *   look at the children; the token is the write's zxid. A watch is `exists`, which also tells that a node has gone already.
 * - Consul: keys that the session has acquired, ordered by CreateIndex. `confirm` is a check-and-set of the own key after a
 *   consistent look at the prefix; the token is its index. One blocking query a process serves all watches (T89, a long poll each).
 */
import type { AcquireRequest, Call, Mode } from '../spi.ts'

export interface QueueEntry {
  readonly key: string
  /** The key's position, given when it was created. A key that was deleted and created again has another one. */
  readonly order: bigint
  readonly weight: number
  readonly granted: boolean
}

/** The queue of one name as it was at one moment, seen from one waiter. */
export interface QueueView {
  readonly own: QueueEntry
  /**
   * Claims older than `own`, oldest first. All of them for permits, and where the request has `maxWaiters`. For a lock the
   * youngest that conflicts is enough. A name that is closed (hold-at-least, lock-delay) has a granted entry that weighs all of
   * the capacity, in front of every waiter. What was eligible when the name was closed may still be granted.
   */
  readonly older: readonly QueueEntry[]
  readonly capacity: number
  /** The key that changes with the capacity, if an operator can change it. For its lower bound see `weightInUse`. */
  readonly capacityKey?: string
  /** Versions that the store's `confirm` compares besides `version`. */
  readonly versions?: ReadonlyMap<string, bigint>
  /** A closed name may be free after this time, and no watch tells of it. The queue then looks again. */
  readonly closedForMs?: number
  /** The moment: a revision or an index of the engine. A watch reports what changes after it. */
  readonly version: bigint
}

/** Where a claim stands, from one answer of the engine. */
export type QueueStanding =
  | { readonly kind: 'granted'; readonly token: bigint; readonly previousData?: string | null | undefined }
  | { readonly kind: 'waiting'; readonly queue: QueueView }
  /** The session lives, but the key has gone: abandoned, or deleted by an operator. */
  | { readonly kind: 'deleted' }
  | { readonly kind: 'session-gone' }

export type JoinResult =
  | Exclude<QueueStanding, { kind: 'waiting' }>
  /** `isNew`: this call has created the key. False if an earlier call of the attempt had. */
  | { readonly kind: 'waiting'; readonly queue: QueueView; readonly isNew: boolean }
  /** Only if it may not wait: it cannot be granted now, and no key was created. */
  | { readonly kind: 'busy' }

/** `changed`: deleted, granted or written in another way. */
export interface WatchedKey {
  readonly key: string
  readonly until: 'deleted' | 'changed'
}

/**
 * One session's access to the engine. As in the SPI, a call has three outcomes (an answer, or a rejection that is
 * `not-applied` or `unknown`), and is sent once. A cancelled call settles soon.
 */
export interface OrderedStore {
  /** Whether `confirm` can itself ask, for a lock, whether anything older conflicts. If not, the queue looks first. */
  readonly comparesOrder: boolean

  /**
   * Creates the claim's key. The same attempt asked again finds its key. If the claim is eligible, the same write should
   * grant it; an engine that cannot do so answers `waiting`. An engine that needs a second write to refuse may also answer
   * `waiting` where the claim may not wait: the queue then deletes the key. Rejects if the attempt was abandoned or the
   * capacity differs.
   */
  join(request: AcquireRequest, mayWait: boolean, call: Call): Promise<JoinResult>

  /** Reads. A keep-alive makes one for each waiter, at the same moment, so they should leave together (`Lane`). */
  look(request: AcquireRequest, call: Call): Promise<QueueStanding>

  /**
   * The write that grants, on condition that `own` is still there: not another key, which a late copy of `join` has created
   * since (T84, late duplicates). Its version is the token, which is never drawn at `join` (C54, tokens drawn at the grant). `seen` is a
   * view in which the claim was eligible; the write also asks whether the capacity is that of the view. Without a view it asks whether
   * nothing older conflicts. If the condition is not met, the answer says how things stand. A granted claim keeps its token.
   */
  confirm(
    request: AcquireRequest,
    own: QueueEntry,
    seen: QueueView | null,
    call: Call,
  ): Promise<QueueStanding>

  /** Deletes the claim's key if it still waits. A granted key stays: a keep-alive may have told of the grant. */
  leave(request: AcquireRequest, call: Call): Promise<void>

  /**
   * Calls back when one of the keys changes after `version`, also if that was before this call (T19, lost wake-ups). `lost`: changes may have
   * been missed (disconnected, compacted, no leader), and nothing more will come. The returned function ends the watch.
   * How many watches share a connection is the store's matter.
   */
  watch(keys: readonly WatchedKey[], version: bigint, onWake: (wake: 'changed' | 'lost') => void): () => void
}

export function isEligible({ own, older, capacity }: QueueView): boolean {
  return weightOf(older) + own.weight <= capacity
}

/** How many of the older ones have to wait. One that is eligible is about to be granted, and is not counted. */
export function waitersBefore({ older, capacity }: QueueView): number {
  return waitersOf(older, capacity).length
}

/**
 * The weight of what holds or is eligible, of all entries of a name. A `resize` must not go below it: a younger claim may
 * have been granted before an older one that is eligible beside it, and then both must still fit.
 */
export function weightInUse(entries: readonly QueueEntry[], capacity: number): number {
  return weightOf(entries) - weightOf(waitersOf(entries, capacity))
}

function waitersOf(entries: readonly QueueEntry[], capacity: number): readonly QueueEntry[] {
  let weight = 0
  return entries.filter((entry) => {
    weight += entry.weight
    return !entry.granted && weight > capacity
  })
}

/**
 * The key that a waiter that is not eligible has to watch, so that it sleeps until it may be eligible, and that few wake at once (G9):
 *
 *   lock                   the youngest older one that conflicts. While it is there, it holds or comes first.
 *   permits, first waiter  the youngest older ones that together leave no room: any of them may make room (T72, sleeping waiters of permits)
 *   permits, others        the predecessor: its deletion, or its grant, which makes this the first waiter
 */
export function watchedBy({ own, older, capacity, capacityKey }: QueueView, mode: Mode): WatchedKey[] {
  const room = capacity - own.weight
  if (mode !== 'permits') {
    const blocker = older.findLast(({ weight }) => weight > room)
    return blocker === undefined ? [] : [{ key: blocker.key, until: 'deleted' }]
  }
  const predecessor = older.at(-1)
  if (predecessor !== undefined && !predecessor.granted && weightOf(older) > capacity)
    return [{ key: predecessor.key, until: 'changed' }]
  const watched: WatchedKey[] = capacityKey === undefined ? [] : [{ key: capacityKey, until: 'changed' }]
  let weight = 0
  for (const entry of older.toReversed()) {
    if (weight > room) break
    weight += entry.weight
    watched.push({ key: entry.key, until: 'deleted' })
  }
  return watched
}

function weightOf(entries: readonly QueueEntry[]): number {
  return entries.reduce((sum, { weight }) => sum + weight, 0)
}
