/** What every guard does inside its transaction: judge all fences, then remember all of them, or nothing. */
import { FenceForeignError, FenceStaleError, type HoldfastError } from '../core/errors.ts'
import { emit, hasListeners } from '../core/events.ts'
import type { Fence } from '../core/fence.ts'
import { assertHeld, type CheckedProof } from './proofs.ts'
import { type Floor, judge, type Remembered, type Verdict } from './rule.ts'
import type { GuardSettings } from './settings.ts'

/** What a guard remembers, within one transaction of the resource that keeps it. */
export interface GuardMemory {
  /** Whose fence was the first ever accepted. */
  pinnedIssuer(): string | null
  pinIssuer(issuer: string): void
  recall(name: string): Remembered | null
  floorOf(issuer: string): Floor | null
  /** Also notes that the name has been touched now. */
  remember(name: string, remembered: Remembered): void
}

/** Throws if one of the proofs must not pass; nothing is remembered then. */
export function pass(
  memory: GuardMemory,
  settings: GuardSettings,
  proofs: readonly CheckedProof[],
  once: boolean,
): void {
  assertHeld(proofs)
  const pinned = memory.pinnedIssuer()
  let trusted = settings.issuers ?? (pinned === null ? null : [pinned])
  const accepted: Remembered[] = []
  for (const { fence } of proofs) {
    const known = { remembered: memory.recall(fence.name), floor: memory.floorOf(fence.issuer), trusted }
    const verdict = judge(fence, known, once)
    if (!verdict.accepted) throw refuse(settings.name, fence, verdict)
    accepted.push(verdict.remembered)
    trusted ??= [fence.issuer]
  }
  const [first] = proofs
  if (pinned === null && first !== undefined) memory.pinIssuer(first.fence.issuer)
  proofs.forEach(({ fence }, index) => {
    const remembered = accepted[index]
    if (remembered !== undefined) memory.remember(fence.name, remembered)
  })
}

export function announceAccepted(guard: string, proofs: readonly CheckedProof[]): void {
  if (!hasListeners('guard-accepted')) return
  for (const { fence } of proofs) emit('guard-accepted', { guard, name: fence.name, token: fence.token })
}

function refuse(guard: string, fence: Fence, verdict: Exclude<Verdict, { accepted: true }>): HoldfastError {
  const { reason } = verdict
  const highest = reason === 'foreign' ? null : verdict.highest
  if (hasListeners('guard-refused'))
    emit('guard-refused', { guard, name: fence.name, token: fence.token, reason, highest })
  return reason === 'foreign'
    ? new FenceForeignError(fence, verdict.expected)
    : new FenceStaleError(fence, verdict.highest, verdict.why)
}
