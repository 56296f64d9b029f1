/**
 * N partitions, shared evenly by the living members. When members join, leave or crash, as few partitions as possible move.
 *
 * There is no coordinator. Every member has a shared lease on `<name>/member`, and each partition is an exclusive lease on
 * `<name>/partition/<n>` with a fence. One list call shows the living members, their weights, and who holds what. Each
 * member computes the same quotas from it (`partitions/quotas.ts`), and acts on its own only:
 *
 *   look: list ─▶ above the quota: stop the newest partitions, then release them
 *              ─▶ below the quota: try to acquire free ones
 *
 * A member looks when the engine's events say that something may have changed, and every third of a TTL. While nothing happens, most
 * looks read only the members. A partition here:
 *
 *   free ──acquired──▶ working            [Assignments.start]  onAssigned
 *   working ──surplus | leaving──▶ stopping ──onRevoked has settled──▶ released ──▶ free   [Assignments.stop]
 *   working | stopping ──the lease is lost──▶ stopping (`lost`) ──onRevoked has settled──▶ free
 *
 * Failures between two steps:
 * - Two members take one partition: the lease decides. The list is only a hint, and may be old.
 * - A crash anywhere: the member's lease and its partitions' leases run out, and the others see both in the next list.
 * - A pause longer than the TTL: the leases are lost. Until the member learns of it only the fence protects.
 * - The reply of an acquire is lost: the locker takes the claim back. Until then the partition is held by a member that does
 *   not count it as its own; it becomes free, and this member or another takes it.
 * - Old lists of the members: a member may stop or take one partition too many. The next look repairs it.
 * - The member's lease is lost and partitions are not: the others share them out already, so all of them are stopped and
 *   released, and the member joins again.
 * - The locker drains: the member takes no further partitions, and its work goes on. It leaves when the locker is closed.
 * - Leaving ends the member's lease first, so that the others take each partition as soon as it is released. A member that
 *   joins compares its `count` with that of all leases, so that it also notices partitions of a member that is still leaving.
 */
import { checkKnownOptions } from '../base/options.ts'
import type { Fencing, Lease, Locker } from '../base/types.ts'
import { checkNeeds, fencingUnless } from './needs.ts'
import { Membership } from './partitions/membership.ts'

/**
 * `moved`: another member gets it. `closed`: this member leaves. In both cases the partition is given away when `onRevoked`
 * has settled. `lost`: the lease is gone, another member may work on it already, and only the fence protects.
 */
export type RevokeReason = 'moved' | 'closed' | 'lost'

export interface PartitionsOptions<F extends Fencing = Fencing> {
  /** Members with the same name share the partitions. */
  readonly name: string
  /** How many partitions there are, numbered from 0: 1 to 4,096. Every member must say the same. */
  readonly count: number
  /** This member's share, compared with that of the others: 1 to 1,000. 2 beside two members with 1: half of the partitions. Default 1. */
  readonly weight?: number
  /** Partitions that belong to the member with this `locker.holder` while it lives. Every member should say the same. */
  readonly pin?: Readonly<Record<number, string>>
  /**
   * Starts the work on a partition. It settles when the work has started, and not when it is done: `onRevoked` is not called
   * before. If it fails, the partition is released, and this member tries again after a TTL.
   */
  readonly onAssigned: (partition: number, lease: Lease<F>) => Promise<void> | void
  /**
   * Stops it. It settles when the work has stopped. Until then the partition is neither given away nor assigned to this
   * member again. If it fails, the partition is given away all the same, and only the fence protects.
   */
  readonly onRevoked: (partition: number, reason: RevokeReason) => Promise<void> | void
  /** Failures of the callbacks, with the partition, and of the engine. Without it they are `warning` events. */
  readonly onError?: (error: unknown, partition?: number) => void
  /** The TTL of all leases: with 10,000 the partitions of a crashed member are free after ten seconds. Default: the locker's. */
  readonly ttlMs?: number
  /** Leaves, like `close`. */
  readonly signal?: AbortSignal
  /** Without fencing tokens a paused member can still write to what it has lost. */
  readonly allowUnfenced?: boolean
}

export interface Partitions<F extends Fencing = Fencing> extends AsyncDisposable {
  /** Partitions that this member works on now. */
  readonly assigned: ReadonlyMap<number, Lease<F>>
  /**
   * Stops all work, gives the partitions away as each of them has stopped, and leaves. It never rejects. A callback may call
   * it, but must not wait for it: it waits for all callbacks.
   */
  close(): Promise<void>
}

const known = [
  'name',
  'count',
  'weight',
  'pin',
  'onAssigned',
  'onRevoked',
  'onError',
  'ttlMs',
  'signal',
  'allowUnfenced',
]

/**
 * Joins, and resolves when it has. It rejects if members disagree on `count`, or if the engine does not answer.
 *
 * ```ts
 * await using member = await partitions(locker, {
 *   name: 'orders',
 *   count: 64,
 *   onAssigned: (partition, lease) => consumers.start(partition, lease),
 *   onRevoked: (partition) => consumers.stop(partition),
 * })
 * ```
 */
export function partitions(
  locker: Locker<'fenced'>,
  options: PartitionsOptions<'fenced'>,
): Promise<Partitions<'fenced'>>
export function partitions<F extends Fencing>(
  locker: Locker<F>,
  options: PartitionsOptions<F> & { readonly allowUnfenced: true },
): Promise<Partitions<F>>
export async function partitions<F extends Fencing>(
  locker: Locker<F>,
  options: PartitionsOptions<F>,
): Promise<Partitions<F>> {
  checkKnownOptions('options', options ?? null, known)
  checkNeeds('partitions', locker, [...fencingUnless(options.allowUnfenced), 'shared'])
  const membership = new Membership(locker, options)
  await membership.open()
  return membership
}
