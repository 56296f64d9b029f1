/**
 * A semaphore that knows its owners: what they hold never exceeds the capacity, and no owner gives back more than it
 * holds. With the capacity of a lock, it is also the model of shared and exclusive holders.
 */
import type { Model } from '../model.ts'
import { prepareLockActs } from '../prepare.ts'
import type { LockCall } from './call.ts'

export interface SemaphoreState {
  /** Who holds how much. */
  readonly holders: ReadonlyMap<string, number>
  readonly held: number
}

export function semaphore(capacity: number): Model<SemaphoreState, LockCall> {
  return {
    title: `semaphore of ${capacity}`,
    initial: { holders: new Map(), held: 0 },
    step({ holders, held }, { kind, owner, weight = 1 }) {
      const before = holders.get(owner) ?? 0
      const after = kind === 'acquire' ? before + weight : before - weight
      const total = held - before + after
      if (after < 0 || total > capacity) return null
      const changed = new Map(holders)
      if (after === 0) changed.delete(owner)
      else changed.set(owner, after)
      return { holders: changed, held: total }
    },
    // The length of each owner's name keeps names apart that contain one another.
    key: ({ holders }) =>
      [...holders]
        .map(([owner, weight]) => `${owner.length}:${owner}${weight}`)
        .sort()
        .join(','),
    describe: ({ holders, held }) => {
      const all = [...holders].map(([owner, weight]) => `${owner} (${weight})`).join(', ')
      return `${held} of ${capacity} are held${all === '' ? '' : `: ${all}`}`
    },
    prepare: prepareLockActs,
  }
}
