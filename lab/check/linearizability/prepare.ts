/**
 * Makes histories of locks easier to search. Each act that may or may not have happened doubles the ways to try, and
 * most of them cannot make a difference, because holding a lock only ever hinders others:
 *
 *   - An uncertain acquire helps only a release by the same owner. Without a certain one it is left out.
 *   - An uncertain acquire that is its owner's only one and that a certain release needs did happen, before that
 *     release returned.
 *   - An uncertain release by an owner that never acquired cannot happen.
 *   - An uncertain release that no other act of its owner depends on had best happen as soon as it can (`eager`).
 *
 * All of this holds for owners whose acts weigh the same; the others are left as they are.
 */
import type { Act } from './model.ts'
import type { LockCall } from './models/call.ts'

type LockAct = Act<LockCall>

export function prepareLockActs(acts: readonly LockAct[]): readonly LockAct[] {
  if (acts.every(({ certain }) => certain)) return acts
  return [...Map.groupBy(acts, ({ call }) => call.owner).values()].flatMap((ofOwner) =>
    ofOwner.every(({ certain }) => certain) || !weighTheSame(ofOwner) ? ofOwner : prepareOwner(ofOwner),
  )
}

function weighTheSame(acts: readonly LockAct[]): boolean {
  const weight = acts[0]?.call.weight ?? 1
  return acts.every(({ call }) => (call.weight ?? 1) === weight)
}

function prepareOwner(acts: readonly LockAct[]): LockAct[] {
  const acquires = acts.filter(({ call }) => call.kind === 'acquire')
  const released = acts
    .filter(({ call, certain }) => call.kind === 'release' && certain)
    .reduce((least, { returned }) => Math.min(least, returned), Infinity)
  const isReleased = released < Infinity

  const kept = acts.flatMap((act) => {
    if (act.certain || act.call.kind === 'release') return act
    if (!isReleased) return []
    if (acquires.length > 1) return act
    return { ...act, certain: true, returned: Math.max(released, act.invoked) }
  })
  const neverAcquired = kept.every(({ call }) => call.kind === 'release')
  return kept
    .filter(({ certain }) => certain || !neverAcquired)
    .map((act) => (isEager(act, kept) ? { ...act, eager: true } : act))
}

/** Everything else of its owner is over when it is invoked, or is another such release. */
function isEager(act: LockAct, ofOwner: readonly LockAct[]): boolean {
  if (act.certain || act.call.kind !== 'release') return false
  return ofOwner.every(({ certain, call, returned }) =>
    certain ? returned < act.invoked : call.kind === 'release',
  )
}
