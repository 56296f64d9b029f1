/**
 * G1: in the engine's own history, the weights of a name's holders never exceed its capacity.
 *
 * With engine events, their replay decides. Without, a lease certainly holds from the return of its acquire until it is
 * given up or its last confirmed prolongation runs out, and no moment may have more of those than fit.
 */
import { type Claim, claimOf, describeClaim } from './claims.ts'
import { at, describeOperation, type Finding, Findings } from './findings.ts'
import type { EngineEvent, History } from './history.ts'
import { type Lease, leasesOf, protectedUntil } from './leases.ts'
import { overfull, placeOf, type Tenure } from './tenures.ts'

export function checkExclusion(history: History): Finding {
  const found = new Findings('G1')
  if (history.engine.some(({ what }) => what === 'granted')) byEngine(history, found)
  else byOperations(history, found)
  return found.done()
}

interface Holder {
  readonly event: EngineEvent
  readonly claim: Claim
}

/** A name as the replay of the engine's events has it. */
interface NameState {
  readonly holders: Map<string, Holder>
  capacity: number
}

const ends = new Set<EngineEvent['what']>(['released', 'expired', 'forced', 'deleted'])

function byEngine(history: History, found: Findings): void {
  const names = new Map<string, NameState>()
  for (const event of history.engine) {
    const { what, name, leaseId } = event
    if (what === 'gap') found.leaveOpen('engine events are missing: holders from before a gap are not known')
    if (name === undefined) names.clear()
    else if (leaseId === undefined && what !== 'resized') names.delete(name)
    else {
      const state = names.get(name) ?? { holders: new Map(), capacity: Infinity }
      names.set(name, state)
      if (what === 'granted') grant(found, history, name, state, event)
      else if (what === 'resized') resize(found, name, state, event)
      else if (ends.has(what)) state.holders.delete(leaseId ?? '')
    }
  }
}

function grant(found: Findings, history: History, name: string, state: NameState, event: EngineEvent): void {
  found.judged()
  const { leaseId = '' } = event
  const quoted = JSON.stringify(name)
  const before = state.holders.get(leaseId)
  if (before !== undefined) {
    // A repeated request is answered with the grant that it has already.
    if (before.event.token === event.token) return
    const tokens = `first with token ${before.event.token}, then ${at(event)} with token ${event.token}`
    found.violated(name, `${leaseId} was granted ${quoted} twice: ${tokens}.`, [leaseId])
    return
  }
  const saysHowMuch = (event.mode ?? event.weight ?? event.capacity) !== undefined
  const claim = saysHowMuch ? claimOf(event) : (leasesOf(history).get(leaseId)?.claim ?? claimOf({}))
  const present = [...state.holders.values()]
  const weight = present.reduce((sum, holder) => sum + holder.claim.weight, 0)
  if (present.length === 0) state.capacity = claim.capacity
  state.holders.set(leaseId, { event, claim })
  if (present.length === 0) return

  const involved = [leaseId, ...present.map((holder) => holder.event.leaseId)]
  const met = present.map(describeHolder).join(', ')
  const newcomer = describeHolder({ event, claim })
  if (weight + claim.weight > state.capacity)
    found.violated(name, `${newcomer} did not fit: ${quoted} was held by ${met}.`, involved)
  else if (claim.capacity !== state.capacity)
    found.violated(
      name,
      `${newcomer} takes the capacity of ${quoted} for ${claim.capacity}; it is ${state.capacity}, held by ${met}.`,
      involved,
    )
}

function resize(found: Findings, name: string, state: NameState, event: EngineEvent): void {
  state.capacity = event.capacity ?? 0
  const present = [...state.holders.values()]
  const weight = present.reduce((sum, holder) => sum + holder.claim.weight, 0)
  if (weight <= state.capacity) return
  found.violated(
    name,
    `${JSON.stringify(name)} was resized to ${state.capacity} ${at(event)} while it was held by ` +
      `${present.map(describeHolder).join(', ')}.`,
    present.map((holder) => holder.event.leaseId),
  )
}

function describeHolder({ event, claim }: Holder): string {
  const whose = event.process === undefined ? '' : ` of ${event.process}`
  return `${event.leaseId}${whose} (${describeClaim(claim)}, granted ${at(event)})`
}

function byOperations(history: History, found: Findings): void {
  if (history.operations.every(({ op, outcome }) => op !== 'acquire' || outcome !== 'ok'))
    found.leaveOpen('no grant is on record')
  const tenures = new Map<string, Tenure<Lease>[]>()
  for (const lease of leasesOf(history).values()) {
    const { acquire } = lease
    if (acquire?.outcome !== 'ok') continue
    const until = protectedUntil(lease, Infinity)
    if (until === null) {
      found.leaveOpen('no engine events, and a lease whose TTL is not known')
      continue
    }
    const list = tenures.get(lease.name) ?? []
    tenures.set(lease.name, list)
    list.push({
      from: acquire.returnedSeq,
      until: Math.min(lease.givenUp?.seq ?? Infinity, placeOf(history, until)),
      claim: lease.claim,
      of: lease,
    })
    found.judged()
  }
  for (const [name, list] of tenures)
    for (const { last, others } of overfull(list)) {
      const met = others.map(describeLease).join(' and ')
      found.violated(
        name,
        `When ${describeLease(last)} had returned, ${JSON.stringify(name)} was still held by ${met}.`,
        [last.id, ...others.map(({ id }) => id)],
      )
    }
}

function describeLease(lease: Lease): string {
  return lease.acquire === undefined ? lease.id : describeOperation(lease.acquire)
}
