/**
 * G10: a name whose holder is gone reaches the first living waiter within granted TTL + expiry slack + lock-delay + two
 * round trips; all dead waiters together cost one more TTL.
 *
 * A name is due when there is room for every living waiter beside the living holders. It must not stay due for longer
 * than that without going to a waiter. Who is dead, stopped or cut off is not living, and while the engine is out
 * nothing is due.
 */
import type { Claim } from './claims.ts'
import { Faults, type Span, without } from './faults.ts'
import { describeOperation, type Finding, Findings, ms } from './findings.ts'
import type { History, Operation } from './history.ts'
import { type Lease, leasesOf } from './leases.ts'

export function checkProgress(history: History): Finding {
  const found = new Findings('G10')
  const { expirySlackMs, roundTripMs } = history.about
  const waited = history.operations.filter(isWaiting)
  if (waited.length === 0) found.leaveOpen('nobody is known to have waited')
  else if (expirySlackMs === undefined || roundTripMs === undefined)
    found.leaveOpen('the expiry slack or the round trip of the engine is not said')
  else {
    const faults = new Faults(history)
    const leases = Map.groupBy(leasesOf(history).values(), ({ name }) => name)
    for (const [name, waiters] of Map.groupBy(waited, (operation) => operation.name)) {
      const ofName = leases.get(name) ?? []
      const ttlMs = longestTtl(ofName)
      const delayMs = longestLockDelay(history, ofName)
      if (ttlMs === 0) found.leaveOpen('no TTL is on record for a name that was waited for')
      else {
        const patienceMs = ttlMs + expirySlackMs + delayMs + 2 * roundTripMs
        follow(waiters, ofName, faults, { ttlMs, patienceMs, endedAt: history.endedAt }, found)
      }
    }
  }
  return found.done()
}

function isWaiting({ op, waits, queued }: Operation): boolean {
  return op === 'acquire' && (waits === true || queued.length > 0)
}

function longestTtl(leases: readonly Lease[]): number {
  const ttls = leases.flatMap(({ acquire, confirmations }) => [acquire, ...confirmations])
  return ttls.reduce((most, each) => Math.max(most, each?.ttlMs ?? 0), 0)
}

function longestLockDelay(history: History, leases: readonly Lease[]): number {
  const general = history.about.lockDelayMs ?? 0
  return leases.reduce((most, { acquire }) => Math.max(most, acquire?.lockDelayMs ?? 0), general)
}

interface Terms {
  readonly ttlMs: number
  readonly patienceMs: number
  readonly endedAt: number
}

function follow(
  waiters: readonly Operation[],
  leases: readonly Lease[],
  faults: Faults,
  { ttlMs, patienceMs, endedAt }: Terms,
  found: Findings,
): void {
  const dead = waiters.flatMap((operation) => deathsOf(operation, faults))
  const picture = new Picture(new Map(leases.map(({ id, claim }) => [id, claim])))
  let since: number | null = null
  for (const change of changesOf(waiters, leases, faults, endedAt)) {
    const waiter = picture.firstWaiter()
    picture.apply(change)
    const isDue = picture.isDue()
    let late = false
    if (since !== null) {
      const from: number = since
      const mourned = dead.some((death) => death.from <= change.time && death.until >= from - ttlMs)
      const limit = from + patienceMs + (mourned ? ttlMs : 0)
      late = change.time > limit
      if (late || change.anew || !isDue) found.judged()
      if (late && waiter !== undefined)
        found.violated(
          waiter.name,
          `${describeOperation(waiter)} waited although there was room since ${ms(from)}: it had to be served by ` +
            `${ms(limit)}, and was not before ${ms(change.time)}.`,
          [waiter.id],
        )
    }
    if (!isDue) since = null
    else if (since === null || late || change.anew) since = change.time
  }
  if (since !== null) found.leaveOpen('the history ends while a client waits for a name that is due')
}

/** How the picture of a name changes at one moment. */
interface Change {
  readonly time: number
  readonly held?: number
  readonly waiter?: { readonly operation: Operation; readonly comes: boolean }
  readonly outage?: number
  /** The name went to a waiter, or may have gone to one that died or gave up: patience begins anew. */
  readonly anew?: boolean
}

/** The holders, the living waiters, and whether the engine works. */
class Picture {
  readonly #claims: ReadonlyMap<string, Claim>
  readonly #waiters = new Set<Operation>()
  #held = 0
  #outages = 0

  constructor(claims: ReadonlyMap<string, Claim>) {
    this.#claims = claims
  }

  apply({ held = 0, outage = 0, waiter }: Change): void {
    this.#held += held
    this.#outages += outage
    if (waiter?.comes) this.#waiters.add(waiter.operation)
    else if (waiter) this.#waiters.delete(waiter.operation)
  }

  /** The one that has waited longest. */
  firstWaiter(): Operation | undefined {
    return this.#waiters.values().next().value
  }

  isDue(): boolean {
    if (this.#outages > 0 || this.#waiters.size === 0) return false
    for (const { leaseId = '' } of this.#waiters) {
      const claim = this.#claims.get(leaseId)
      if (claim === undefined || this.#held + claim.weight > claim.capacity) return false
    }
    return true
  }
}

function changesOf(
  waiters: readonly Operation[],
  leases: readonly Lease[],
  faults: Faults,
  endedAt: number,
): Change[] {
  const changes: Change[] = [...waiters.flatMap((operation) => ofWaiter(operation, faults))]
  changes.push(...leases.flatMap((lease) => ofHolder(lease, faults)))
  for (const { from, until } of faults.outages)
    changes.push({ time: from, outage: 1 }, { time: until, outage: -1 })
  changes.push({ time: endedAt })
  // At one moment, who takes its place comes before who goes, and who is granted leaves the line first.
  const rank = ({ held = 0, waiter }: Change) => (held > 0 ? 0 : waiter?.comes === false ? 1 : 2)
  return changes
    .filter(({ time }) => time <= endedAt)
    .sort((one, other) => one.time - other.time || rank(one) - rank(other))
}

function ofWaiter(operation: Operation, faults: Faults): Change[] {
  const { at, returnedAt, outcome, process } = operation
  return without({ from: at, until: returnedAt }, faults.of(process)).flatMap(({ from, until }) => [
    { time: from, waiter: { operation, comes: true } },
    { time: until, waiter: { operation, comes: false }, anew: until !== returnedAt || outcome !== 'ok' },
  ])
}

function ofHolder(lease: Lease, faults: Faults): Change[] {
  const { acquire, claim, process } = lease
  if (acquire?.outcome !== 'ok') return []
  const held = without({ from: acquire.returnedAt, until: goneAt(lease) }, faults.of(process))
  return [
    { time: acquire.returnedAt, anew: true },
    ...held.flatMap(({ from, until }) => [
      { time: from, held: claim.weight },
      { time: until, held: -claim.weight },
    ]),
  ]
}

/** When its holder stopped holding, as far as its own side can tell, and the name was no longer kept closed for it. */
function goneAt({ acquire, operations, belief }: Lease): number {
  const releases = operations.filter(({ op }) => op === 'release' || op === 'abandon')
  const released = releases.reduce((least, { returnedAt }) => Math.min(least, returnedAt), Infinity)
  const closedUntil = acquire === undefined ? -Infinity : acquire.returnedAt + (acquire.holdAtLeastMs ?? 0)
  return Math.max(Math.min(released, belief?.ended?.at ?? Infinity), closedUntil)
}

/** When a waiter died or gave up; it may have stayed in the queue for one TTL after that. */
function deathsOf(operation: Operation, faults: Faults): Span[] {
  const { at, returnedAt, outcome, process } = operation
  const struck = faults.of(process).filter(({ from, until }) => from < returnedAt && until > at)
  const gaveUp = outcome !== 'ok' && returnedAt < Infinity
  return gaveUp ? [...struck, { from: returnedAt, until: returnedAt }] : struck
}
