/**
 * A fenced mutex that its owner may acquire again, up to `depth` times at once, with the same token (T39, re-entry), and has to
 * release as often. Where the first grant's token is not known, re-entry may tell it.
 */
import type { Model } from '../model.ts'
import { prepareLockActs } from '../prepare.ts'
import type { LockCall } from './call.ts'

export interface ReentrantState {
  readonly owner: string | null
  /** How often its owner has it. */
  readonly times: number
  /** The owner's; null if it is not known. */
  readonly token: bigint | null
  /** The least that the highest token so far can be; the owner's is that one. */
  readonly highest: bigint
}

export function reentrantFencedMutex(depth = 2): Model<ReentrantState, LockCall> {
  return {
    title: `re-entrant fenced mutex (${depth} times)`,
    initial: { owner: null, times: 0, token: null, highest: 0n },
    step(state, call) {
      if (call.kind === 'release') return release(state, call.owner)
      if (state.owner === null) return enter(state, call)
      return state.owner === call.owner && state.times < depth ? reenter(state, call) : null
    },
    key: ({ owner, times, token, highest }) => `${highest} ${times} ${token ?? '?'} ${owner ?? ''}`,
    describe: ({ owner, times, token, highest }) =>
      owner === null
        ? `it is free, and the highest token is ${highest} or more`
        : `${owner} holds it ${times} times with token ${token ?? `${highest} or more`}`,
    prepare: prepareLockActs,
  }
}

function enter({ highest }: ReentrantState, { owner, token }: LockCall): ReentrantState | null {
  if (token === undefined) return { owner, times: 1, token: null, highest: highest + 1n }
  return token > highest ? { owner, times: 1, token, highest: token } : null
}

function reenter(state: ReentrantState, { token }: LockCall): ReentrantState | null {
  const again = { ...state, times: state.times + 1 }
  if (token === undefined) return again
  if (state.token !== null) return token === state.token ? again : null
  return token >= state.highest ? { ...again, token, highest: token } : null
}

function release(state: ReentrantState, owner: string): ReentrantState | null {
  if (state.owner !== owner) return null
  if (state.times > 1) return { ...state, times: state.times - 1 }
  return { owner: null, times: 0, token: null, highest: state.highest }
}
