/**
 * Linearizability by definition: try every choice of the acts that may have happened, in every order, and see whether
 * one of them respects who came before whom and is a legal sequence. What is legal is stated about whole
 * sequences, not as a machine, so that nothing is shared with the models under test.
 */
import type { Act } from '../linearizability/model.ts'
import type { LockCall } from '../linearizability/models/call.ts'

/** Must say yes to every beginning of a sequence that it says yes to. */
export type Legal = (calls: readonly LockCall[]) => boolean

export function isLinearizableByBruteForce(legal: Legal, acts: readonly Act<LockCall>[]): boolean {
  const uncertain = acts.filter(({ certain }) => !certain)
  for (let choice = 0; choice < 2 ** uncertain.length; choice++) {
    const chosen = new Set(uncertain.filter((_act, index) => choice & (1 << index)))
    if (
      canFinish(
        legal,
        [],
        acts.filter((act) => act.certain || chosen.has(act)),
      )
    )
      return true
  }
  return false
}

function canFinish(legal: Legal, order: readonly Act<LockCall>[], left: readonly Act<LockCall>[]): boolean {
  if (left.length === 0) return true
  return left.some((act) => {
    if (order.some((earlier) => act.returned < earlier.invoked)) return false
    const longer = [...order, act]
    return (
      legal(longer.map(({ call }) => call)) &&
      canFinish(
        legal,
        longer,
        left.filter((other) => other !== act),
      )
    )
  })
}

/** Turns: each acquire is followed by its owner's release. */
export const legalMutex: Legal = (calls) =>
  calls.every(({ kind, owner }, index) =>
    index % 2 === 0 ? kind === 'acquire' : kind === 'release' && owner === calls[index - 1]?.owner,
  )

export const legalFencedMutex: Legal = (calls) =>
  legalMutex(calls) &&
  canIncrease(
    calls.filter(({ kind }) => kind === 'acquire').map(({ token }) => (token === undefined ? [] : [token])),
  )

/** In each turn, one owner is in once or twice, and all tokens of it are the same. */
export function legalReentrantFencedMutex(depth: number): Legal {
  return (calls) => {
    const turns: LockCall[][] = [[]]
    let inside = 0
    for (const call of calls) {
      turns.at(-1)?.push(call)
      inside += call.kind === 'acquire' ? 1 : -1
      if (inside < 0 || inside > depth) return false
      if (inside === 0) turns.push([])
    }
    const oneOwner = turns.every((turn) => new Set(turn.map(({ owner }) => owner)).size <= 1)
    const tokens = turns
      .filter((turn) => turn.length > 0)
      .map((turn) =>
        turn.flatMap(({ kind, token }) => (kind === 'acquire' && token !== undefined ? [token] : [])),
      )
    return oneOwner && canIncrease(tokens)
  }
}

export function legalSemaphore(capacity: number): Legal {
  return (calls) =>
    calls.every((_call, end) => {
      const held = new Map<string, number>()
      for (const { kind, owner, weight = 1 } of calls.slice(0, end + 1))
        held.set(owner, (held.get(owner) ?? 0) + (kind === 'acquire' ? weight : -weight))
      const all = [...held.values()]
      return all.every((each) => each >= 0) && all.reduce((sum, each) => sum + each, 0) <= capacity
    })
}

/** Whether whole numbers can be filled in where none is known, so that all are positive and increase. */
function canIncrease(turns: readonly (readonly bigint[])[]): boolean {
  const known = turns.flatMap((tokens, index) => tokens.map((token) => ({ token, index: BigInt(index) })))
  return known.every(
    ({ token, index }) =>
      token >= index + 1n &&
      known.every((later) => later.index < index || later.token - token >= later.index - index) &&
      known.every((other) => other.index !== index || other.token === token),
  )
}
