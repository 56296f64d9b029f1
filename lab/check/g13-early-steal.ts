/**
 * G13: no grant goes to another before the holder's last confirmed prolongation + TTL, unless it was given up, deleted
 * or forced. A grant happened at the latest when the engine was seen to make it, or when its acquire returned.
 */
import { describeOperation, type Finding, Findings, ms } from './findings.ts'
import type { EngineEvent, History, Stamp } from './history.ts'
import { type Lease, leasesOf, protectedUntil } from './leases.ts'

export function checkEarlySteal(history: History): Finding {
  const found = new Findings('G13')
  const grants: Grant[] = []
  for (const lease of leasesOf(history).values()) {
    const grant = grantOf(lease)
    if (grant === null) continue
    grants.push(grant)
    if (lease.confirmations.length === 0)
      found.leaveOpen('a lease has no confirmed prolongation with a TTL on record')
  }
  if (grants.length === 0) found.leaveOpen('no grant is on record')
  for (const ofName of Map.groupBy(grants, ({ lease }) => lease.name).values()) checkName(ofName, found)
  return found.done()
}

interface Grant {
  readonly lease: Lease
  /** It was granted then or before. */
  readonly latest: Stamp
  readonly engine: EngineEvent | undefined
}

function grantOf(lease: Lease): Grant | null {
  const engine = lease.engine.find(({ what }) => what === 'granted')
  const { acquire } = lease
  const returned =
    acquire?.outcome === 'ok' ? { seq: acquire.returnedSeq, at: acquire.returnedAt } : undefined
  const [latest] = [engine, returned, lease.belief]
    .filter((stamp) => stamp !== undefined)
    .sort((one, other) => one.seq - other.seq)
  return latest === undefined ? null : { lease, latest, engine }
}

function checkName(grants: readonly Grant[], found: Findings): void {
  let earlier: Grant[] = []
  for (const grant of grants.toSorted((one, other) => one.latest.seq - other.latest.seq)) {
    const { lease, latest } = grant
    found.judged()
    earlier = earlier.filter((other) => mayStillHold(other.lease, latest))
    const robbed = earlier.filter(
      (other) => isBefore(other, grant) && (protectedUntil(other.lease, latest.seq) ?? -Infinity) > latest.at,
    )
    const weight = robbed.reduce((sum, other) => sum + other.lease.claim.weight, 0)
    const capacity = Math.min(lease.claim.capacity, ...robbed.map((other) => other.lease.claim.capacity))
    if (robbed.length > 0 && weight + lease.claim.weight > capacity)
      found.violated(
        lease.name,
        `${describe(grant)} was granted at ${ms(latest.at)} or before, while time was left to ` +
          `${robbed.map((other) => `${describe(other)}, until ${ms(protectedUntil(other.lease, latest.seq) ?? 0)}`).join(' and ')}.`,
        [lease.id, ...robbed.map((other) => other.lease.id)],
      )
    earlier.push(grant)
  }
}

function mayStillHold(lease: Lease, then: Stamp): boolean {
  return (
    (protectedUntil(lease, Infinity) ?? -Infinity) > then.at && (lease.givenUp?.seq ?? Infinity) > then.seq
  )
}

/** Certainly granted before the other. */
function isBefore(one: Grant, other: Grant): boolean {
  if (one.engine !== undefined && other.engine !== undefined) return one.engine.seq < other.engine.seq
  return one.latest.seq < (other.lease.acquire?.seq ?? -Infinity)
}

function describe({ lease }: Grant): string {
  return lease.acquire === undefined ? `${lease.id} of ${lease.process}` : describeOperation(lease.acquire)
}
