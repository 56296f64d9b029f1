/**
 * The guard rule, as a pure decision about one fence:
 *
 *   exclusive   newer than every token seen, or the very grant that was seen last
 *   shared      newer than the highest exclusive token seen
 *
 * A name that is not remembered is compared with its issuer's floor instead: the highest token among the forgotten.
 * A fence that the floor has refused stays refused after the name is remembered again (G5). For an exclusive fence the token
 * that came in above the floor sees to that; with a shared one, the floor itself is remembered as if it were exclusive.
 */
import type { Fence } from '../base/fence.ts'

/** A guard's memory of one name. */
export interface Remembered {
  /** The newest fence that was accepted. */
  readonly highest: Fence
  /** The highest token that an exclusive fence had, or may have had before the name was forgotten; null if none. */
  readonly exclusiveToken: bigint | null
}

export interface Floor {
  readonly token: bigint
  readonly grant: string
}

/** The part of a guard's knowledge that concerns one fence. */
export interface Known {
  readonly remembered: Remembered | null
  /** The floor of the fence's issuer. */
  readonly floor: Floor | null
  /** Null until the first fence was accepted. */
  readonly trusted: readonly string[] | null
}

export type Verdict =
  | { readonly accepted: true; readonly remembered: Remembered }
  | { readonly accepted: false; readonly reason: 'foreign'; readonly expected: readonly string[] }
  | {
      readonly accepted: false
      readonly reason: 'stale' | 'used'
      readonly highest: bigint
      readonly why: string
    }

export function judge(fence: Fence, known: Known, once: boolean): Verdict {
  const { remembered, floor, trusted } = known
  if (trusted !== null && !trusted.includes(fence.issuer)) return foreign(trusted)
  if (remembered === null) return judgeByFloor(fence, floor, once)
  // Tokens of two issuers are not comparable, even if both are trusted.
  if (remembered.highest.issuer !== fence.issuer) return foreign([remembered.highest.issuer])
  return fence.mode === 'exclusive' ? judgeExclusive(fence, remembered, once) : judgeShared(fence, remembered)
}

function judgeExclusive(fence: Fence, { highest }: Remembered, once: boolean): Verdict {
  if (fence.token < highest.token) return stale(highest.token, 'a newer holder has been here')
  if (fence.token === highest.token) {
    // A broken engine can issue one token twice (T68, tokens lost in a crash): then the grant decides, and only the first to come passes.
    if (highest.mode !== 'exclusive' || fence.grant !== highest.grant)
      return stale(highest.token, 'another holder with the same token has been here')
    if (once) return used(highest.token)
  }
  return accept(fence, fence.token)
}

function judgeShared(fence: Fence, { highest, exclusiveToken }: Remembered): Verdict {
  if (exclusiveToken !== null && fence.token <= exclusiveToken)
    return stale(exclusiveToken, 'an exclusive holder that is not older has been here')
  // Shared holders come in any order; the newest of them is what an exclusive one must beat.
  return accept(fence.token > highest.token ? fence : highest, exclusiveToken)
}

function judgeByFloor(fence: Fence, floor: Floor | null, once: boolean): Verdict {
  if (floor !== null && fence.token <= floor.token) {
    const isTheFloor = fence.token === floor.token && fence.grant === floor.grant
    if (!isTheFloor) return stale(floor.token, 'this name was forgotten together with newer tokens')
    if (once) return used(floor.token)
  }
  return accept(fence, fence.mode === 'exclusive' ? fence.token : exclusiveBelow(fence, floor))
}

/** Which of the forgotten were exclusive is not known any more, so all of them count, but for the fence itself. */
function exclusiveBelow(shared: Fence, floor: Floor | null): bigint | null {
  if (floor === null) return null
  return shared.token === floor.token ? floor.token - 1n : floor.token
}

function accept(highest: Fence, exclusiveToken: bigint | null): Verdict {
  return { accepted: true, remembered: { highest, exclusiveToken } }
}

function stale(highest: bigint, why: string): Verdict {
  return { accepted: false, reason: 'stale', highest, why }
}

function used(highest: bigint): Verdict {
  return {
    accepted: false,
    reason: 'used',
    highest,
    why: 'it has been used before and may be used once only',
  }
}

function foreign(expected: readonly string[]): Verdict {
  return { accepted: false, reason: 'foreign', expected }
}
