/**
 * The checkpoint of every guard, inside its transaction: judge all fences, then remember all of them, or nothing.
 *
 * `decide` is the judgement alone, for a resource that cannot answer at once: it is given what was read before, under
 * the resource's own lock, and its decision is written afterwards. `pass` is both for a memory that answers at once.
 */
import { FenceForeignError, FenceStaleError, type HoldfastError } from '../base/errors.ts'
import { emit, hasListeners } from '../base/events.ts'
import type { Fence } from '../base/fence.ts'
import { assertHeld, type CheckedProof } from './proofs.ts'
import { type Floor, judge, type Remembered, type Verdict } from './rule.ts'
import type { GuardSettings } from './settings.ts'

/** A guard's knowledge, within one transaction of the resource that keeps it. */
export interface GuardKnowledge {
  /** Whose fence was the first ever accepted. */
  pinnedIssuer(): string | null
  recall(name: string): Remembered | null
  floorOf(issuer: string): Floor | null
}

export interface GuardMemory extends GuardKnowledge {
  pinIssuer(issuer: string): void
  /** Remembers the fence, and that the name has been touched now. */
  remember(name: string, remembered: Remembered): void
}

/** The decision about proofs that pass: what is to be remembered of them. */
export interface Decision {
  /** The issuer to pin; null if one is pinned already. */
  readonly pin: string | null
  readonly remember: readonly { readonly name: string; readonly remembered: Remembered }[]
}

/** Throws if one of the proofs must not pass; nothing is remembered then. */
export function pass(
  memory: GuardMemory,
  settings: GuardSettings,
  proofs: readonly CheckedProof[],
  once: boolean,
): void {
  const { pin, remember } = decide(memory, settings, proofs, once)
  if (pin !== null) memory.pinIssuer(pin)
  for (const { name, remembered } of remember) memory.remember(name, remembered)
}

/** Throws if one of the proofs must not pass. */
export function decide(
  knowledge: GuardKnowledge,
  settings: GuardSettings,
  proofs: readonly CheckedProof[],
  once: boolean,
): Decision {
  assertHeld(proofs, settings.name)
  const pinned = knowledge.pinnedIssuer()
  let trusted = settings.issuers ?? (pinned === null ? null : [pinned])
  const remember: { name: string; remembered: Remembered }[] = []
  for (const { fence } of proofs) {
    const { name, issuer } = fence
    const known = { remembered: knowledge.recall(name), floor: knowledge.floorOf(issuer), trusted }
    const verdict = judge(fence, known, once)
    if (!verdict.accepted) throw refuse(settings.name, fence, verdict)
    remember.push({ name, remembered: verdict.remembered })
    trusted ??= [issuer]
  }
  return { pin: pinned === null ? (proofs[0]?.fence.issuer ?? null) : null, remember }
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
