/** Checks what callers hand in: types do not bind callers that are written in JavaScript. */
import {
  FenceInvalidError,
  InvalidArgumentError,
  isHoldfastError,
  LeaseLostError,
  quote,
} from '../base/errors.ts'
import { emit, hasListeners } from '../base/events.ts'
import { type Fence, isFence } from '../base/fence.ts'
import { compareNames } from '../base/names.ts'
import type { FencedLease } from '../base/types.ts'
import type { Proof } from './guard.ts'

export interface CheckedProof {
  readonly fence: Fence
  /** Absent if the fence came alone, from another process. */
  readonly lease?: FencedLease
}

/** Proofs in the order of their names; none twice. */
export function checkProofs(proof: Proof | readonly Proof[], once: boolean): readonly CheckedProof[] {
  const given: readonly unknown[] = Array.isArray(proof) ? proof : [proof]
  if (given.length === 0) throw new InvalidArgumentError('proof', 'must not be an empty list.')
  const proofs = given.map(checkProof).sort((a, b) => compareNames(a.fence.name, b.fence.name))
  proofs.forEach(({ fence }, index) => {
    if (fence.name === proofs[index + 1]?.fence.name)
      throw new InvalidArgumentError('proof', `must not have two fences for one name, ${quote(fence.name)}.`)
    if (once && fence.mode === 'shared')
      throw new InvalidArgumentError(
        'once',
        'needs exclusive fences: a guard does not remember every shared holder.',
      )
  })
  return proofs
}

export function checkEffect(effect: unknown): void {
  if (typeof effect !== 'function')
    throw new InvalidArgumentError('effect', 'must be a function: guard.run(lease, (tx) => …).')
}

/** A holder that knows it has lost its lease must not even try. `guard`: which one refuses it. */
export function assertHeld(proofs: readonly CheckedProof[], guard?: string): void {
  for (const { fence, lease } of proofs) {
    if (lease === undefined || lease.state === 'held' || lease.state === 'jeopardy') continue
    const { name, token } = fence
    if (guard !== undefined && hasListeners('guard-refused'))
      emit('guard-refused', { guard, name, token, reason: 'lost', highest: null })
    const { reason } = lease.signal
    if (isHoldfastError(reason, 'LEASE_LOST')) throw reason
    throw new LeaseLostError(name, lease.state === 'released' ? 'released' : 'expired', {
      leaseId: fence.grant,
    })
  }
}

function checkProof(value: unknown): CheckedProof {
  if (isFence(value)) return { fence: value }
  if (isFencedLease(value)) return { fence: value.fence, lease: value }
  throw new FenceInvalidError('not-a-fence', describe(value))
}

function isFencedLease(value: unknown): value is FencedLease {
  if (typeof value !== 'object' || value === null) return false
  const { fencing, fence, state, signal } = value as Partial<FencedLease>
  return fencing === 'fenced' && isFence(fence) && typeof state === 'string' && signal instanceof AbortSignal
}

function describe(value: unknown): string {
  if (value === null || value === undefined) return `it is ${value}`
  if (typeof value !== 'object') return `it is a ${typeof value}`
  if (typeof (value as { then?: unknown }).then === 'function')
    return 'it is a promise: an `await` is missing'
  if ((value as { fencing?: unknown }).fencing === 'unfenced')
    return 'it is an unfenced lease or a permit: its backend issues no tokens, or several may hold at once'
  return 'it is an object of another kind, or a copy of a fence'
}
