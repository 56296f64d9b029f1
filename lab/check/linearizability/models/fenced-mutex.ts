/**
 * A mutex that fences: each grant has a greater token than all before it. A grant whose token is not known had one
 * all the same, so it was at least one more than the highest before: between 5 and 6 there was no other grant.
 */
import type { Model } from '../model.ts'
import { prepareLockActs } from '../prepare.ts'
import type { LockCall } from './call.ts'

export interface FencedState {
  readonly owner: string | null
  /** The least that the highest token so far can be. */
  readonly highest: bigint
}

export function fencedMutex(): Model<FencedState, LockCall> {
  return {
    title: 'fenced mutex',
    initial: { owner: null, highest: 0n },
    step({ owner, highest }, call) {
      if (call.kind === 'release') return owner === call.owner ? { owner: null, highest } : null
      if (owner !== null) return null
      const token = call.token ?? highest + 1n
      return token > highest ? { owner: call.owner, highest: token } : null
    },
    key: ({ owner, highest }) => `${highest} ${owner ?? ''}`,
    describe: ({ owner, highest }) =>
      `${owner === null ? 'it is free' : `${owner} holds it`}, and the highest token is ${highest} or more`,
    prepare: prepareLockActs,
  }
}
