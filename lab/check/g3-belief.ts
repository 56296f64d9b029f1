/**
 * G3: a lease stops believing before the engine can give it away by expiry.
 *
 *   by its own clock    no reading says "held" after the last confirmed prolongation + TTL − drift, and nothing
 *                       revives it (G4)
 *   by the engine       no reading says "held" after the engine let it expire
 *   by the others       no two that do not fit together believe at once, unless one of them was given up, forced or
 *                       deleted: those ends are learnt at the next keep-alive, and until then only the guard protects
 */
import { at, type Finding, Findings, ms } from './findings.ts'
import type { Belief, Confirmation, History, Stamp } from './history.ts'
import { type Lease, leasesOf } from './leases.ts'
import { overfull, type Tenure } from './tenures.ts'

/** `toleranceMs`: how far two of the recorder's readings of its clock may be apart for what was one moment. */
export function checkBelief(
  history: History,
  { toleranceMs = 0 }: { readonly toleranceMs?: number } = {},
): Finding {
  const found = new Findings('G3')
  const crashed = new Set(history.faults.filter(({ what }) => what === 'crash').map(({ process }) => process))
  const tenures = new Map<string, Tenure<Lease>[]>()
  if (history.beliefs.length === 0) found.leaveOpen('no belief is on record')

  for (const lease of leasesOf(history).values()) {
    const { belief } = lease
    if (belief === undefined) continue
    found.judged()
    if (belief.ended === null && !crashed.has(belief.process))
      found.leaveOpen('the end of a belief was not recorded: judged only up to its last reading')
    checkOwnClock(belief, toleranceMs, found)
    checkAgainstEngine(lease, belief, toleranceMs, found)
    const list = tenures.get(lease.name) ?? []
    tenures.set(lease.name, list)
    const until = Math.min(believedUntil(belief) - toleranceMs, lease.givenUp?.at ?? Infinity)
    list.push({ from: belief.at, until, claim: lease.claim, of: lease })
  }

  for (const [name, list] of tenures)
    for (const { last, others } of overfull(list)) {
      const met = others.map(describe).join(' and ')
      found.violated(
        name,
        `Two believed in ${JSON.stringify(name)} at once: ${describe(last)}, when ${met} had not ended.`,
        [last.id, ...others.map(({ id }) => id)],
      )
    }
  return found.done()
}

/** The last moment at which it is known to have believed. */
function believedUntil(belief: Belief): number {
  const readings = Math.max(belief.seen.at(-1)?.at ?? belief.at, belief.at)
  return belief.ended === null ? readings : Math.max(belief.ended.until, readings)
}

type Moment =
  | { readonly is: 'confirmed'; readonly when: Confirmation }
  | { readonly is: 'seen' | 'ended'; readonly when: Stamp }

function checkOwnClock(belief: Belief, toleranceMs: number, found: Findings): void {
  const { leaseId, process, name, driftMs, ended } = belief
  const violated = (message: string) =>
    found.violated(name, `The lease ${leaseId} of ${process} on ${JSON.stringify(name)} ${message}`, [
      leaseId,
    ])
  const moments: Moment[] = [
    ...belief.confirmations.map((when) => ({ is: 'confirmed' as const, when })),
    ...belief.seen.map((when) => ({ is: 'seen' as const, when })),
    ...(ended === null ? [] : [{ is: 'ended' as const, when: ended }]),
  ].sort((one, other) => one.when.seq - other.when.seq)

  let deadline = -Infinity
  let over = false
  for (const [index, { is, when }] of moments.entries()) {
    const late = when.at > deadline + toleranceMs
    if (over) violated(`was ${is} ${at(when)}, after it had ended (G4).`)
    else if (is === 'seen' && late)
      violated(`still said "held" ${at(when)}, after its deadline at ${ms(deadline)}.`)
    else if (is === 'confirmed') {
      if (late && index > 0) violated(`was revived ${at(when)}, after its deadline at ${ms(deadline)} (G4).`)
      deadline = Math.max(deadline, when.sentAt + when.ttlMs - driftMs)
      if (index === 0 && when.at > deadline + toleranceMs)
        violated(`was already over when belief in it began ${at(when)}: its deadline was ${ms(deadline)}.`)
    } else if (is === 'ended') {
      over = true
      if (ended !== null && ended.until > deadline + toleranceMs)
        violated(`was believed in until ${ms(ended.until)}, after its deadline at ${ms(deadline)}.`)
    }
  }
}

function checkAgainstEngine(lease: Lease, belief: Belief, toleranceMs: number, found: Findings): void {
  const until = believedUntil(belief)
  // If the time of the expiry is when it was learnt, it was earlier still.
  const expired = lease.engine.find(({ what, seq }) => what === 'expired' && seq > belief.seq)
  if (expired === undefined || until <= expired.at + toleranceMs) return
  found.violated(
    lease.name,
    `${lease.process} believed in ${lease.id} on ${JSON.stringify(lease.name)} until ${ms(until)}; ` +
      `the engine had let it expire ${at(expired)}.`,
    [lease.id],
  )
}

function describe({ id, process, belief }: Lease): string {
  if (belief === undefined) return `${id} of ${process}`
  return `${id} of ${process} (believed from ${ms(belief.at)} to ${ms(believedUntil(belief))})`
}
