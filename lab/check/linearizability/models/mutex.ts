/** A mutex that knows its owner: it is not acquired while it is held, and only its owner releases it. */
import type { Model } from '../model.ts'
import { prepareLockActs } from '../prepare.ts'
import type { LockCall } from './call.ts'

const free = ''

/** The state is its owner. */
export function mutex(): Model<string, LockCall> {
  return {
    title: 'mutex',
    initial: free,
    step: (owner, call) =>
      call.kind === 'acquire' ? (owner === free ? call.owner : null) : owner === call.owner ? free : null,
    key: (owner) => owner,
    describe: (owner) => (owner === free ? 'it is free' : `${owner} holds it`),
    prepare: prepareLockActs,
  }
}
