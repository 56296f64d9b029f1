/** Everything that a history says about each lease, in one place. */
import { type Claim, claimOf } from './claims.ts'
import type { Belief, Confirmation, EngineEvent, History, Operation, Stamp } from './history.ts'

export interface Lease {
  readonly id: string
  readonly name: string
  readonly process: string
  readonly claim: Claim
  readonly token: bigint | undefined
  /** The first acquire that names it, whatever its outcome. */
  readonly acquire: Operation | undefined
  /** All operations that name it, the acquires among them. */
  readonly operations: readonly Operation[]
  readonly belief: Belief | undefined
  readonly engine: readonly EngineEvent[]
  /** Prolongations that its client knows of, the grant among them, in the order in which it learnt of them. */
  readonly confirmations: readonly Confirmation[]
  /** From here on it may have ended for another reason than its time: given up, forced, or meddled with. */
  readonly givenUp: Stamp | null
}

/** Until when the engine must not give it to another, by what its client knew at `seq`; null without a TTL. */
export function protectedUntil(lease: Lease, seq: number): number | null {
  let until: number | null = null
  for (const confirmation of lease.confirmations) {
    if (confirmation.seq >= seq) break
    until = Math.max(until ?? -Infinity, confirmation.sentAt + confirmation.ttlMs)
  }
  return until
}

const made = new WeakMap<History, ReadonlyMap<string, Lease>>()

export function leasesOf(history: History): ReadonlyMap<string, Lease> {
  let leases = made.get(history)
  if (leases === undefined) {
    leases = collect(history)
    made.set(history, leases)
  }
  return leases
}

interface Evidence {
  readonly operations: Operation[]
  readonly engine: EngineEvent[]
  belief?: Belief
}

function collect(history: History): Map<string, Lease> {
  const found = new Map<string, Evidence>()
  const evidence = (id: string): Evidence => {
    const known = found.get(id) ?? { operations: [], engine: [] }
    found.set(id, known)
    return known
  }
  for (const operation of history.operations) {
    if (operation.leaseId === undefined || !aboutItsOwnLease.has(operation.op)) continue
    evidence(operation.leaseId).operations.push(operation)
  }
  for (const belief of history.beliefs) evidence(belief.leaseId).belief = belief
  for (const event of history.engine)
    if (event.leaseId !== undefined) evidence(event.leaseId).engine.push(event)

  const enders = new Enders(history)
  const leases = new Map<string, Lease>()
  for (const [id, known] of found) leases.set(id, enders.judge(describe(id, known)))
  return leases
}

const aboutItsOwnLease = new Set<Operation['op']>(['acquire', 'release', 'renew', 'abandon'])

function describe(id: string, { operations, engine, belief }: Evidence): Omit<Lease, 'givenUp'> {
  const acquire = operations.find(({ op }) => op === 'acquire')
  const granted = engine.find(({ what }) => what === 'granted')
  const asked = [acquire, belief, granted, engine[0]].find(
    (each) => each?.mode !== undefined || each?.weight !== undefined || each?.capacity !== undefined,
  )
  return {
    id,
    name: acquire?.name ?? belief?.name ?? operations[0]?.name ?? engine[0]?.name ?? '',
    process:
      acquire?.process ?? belief?.process ?? operations[0]?.process ?? engine[0]?.process ?? 'somebody',
    claim: claimOf(asked ?? {}),
    token: acquire?.token ?? belief?.token ?? granted?.token,
    acquire,
    operations,
    belief,
    engine,
    confirmations: confirmationsOf(operations, belief),
  }
}

/**
 * The invocation is no later than the sending, so counting from it can only protect for less long. Where a belief is on
 * record, it tells what the grant counts from: on a session that is older than the acquire, from before that.
 */
function confirmationsOf(
  operations: readonly Operation[],
  belief: Belief | undefined,
): readonly Confirmation[] {
  const known = [...(belief?.confirmations ?? [])]
  let ttlMs = known[0]?.ttlMs
  for (const { op, outcome, returnedSeq, returnedAt, at, sentAt = at, ...operation } of operations) {
    if (outcome !== 'ok' || (op !== 'acquire' && op !== 'renew')) continue
    ttlMs = operation.ttlMs ?? ttlMs
    if (ttlMs === undefined || (op === 'acquire' && belief !== undefined)) continue
    known.push({ seq: returnedSeq, at: returnedAt, sentAt, ttlMs })
  }
  return known.sort((one, other) => one.seq - other.seq)
}

/** Whether a force release is aimed at this lease; what the history does not tell counts as a yes. */
export function isAimedAt(force: Operation, lease: Pick<Lease, 'id' | 'token' | 'process'>): boolean {
  if (force.leaseId !== undefined) return force.leaseId === lease.id
  if (force.token !== undefined) return lease.token === undefined || lease.token === force.token
  return force.target === undefined || force.target === lease.process
}

/** Ends of leases from outside: forces, closes, deletions and meddling, found by name and by process. */
class Enders {
  readonly #exact: boolean
  readonly #forces: Map<string, Operation[]>
  readonly #closes: Map<string, Operation[]>
  readonly #meddled: History['meddled']
  readonly #wipes: readonly EngineEvent[]

  constructor(history: History) {
    const by = (op: Operation['op'], key: (operation: Operation) => string) =>
      Map.groupBy(
        history.operations.filter((operation) => operation.op === op && operation.outcome !== 'fail'),
        key,
      )
    this.#exact = history.about.engineTimes === 'exact'
    this.#forces = by('force-release', ({ name }) => name)
    this.#closes = by('close', ({ process }) => process)
    this.#meddled = history.meddled
    this.#wipes = history.engine.filter(({ what, leaseId }) => what === 'deleted' && leaseId === undefined)
  }

  judge(lease: Omit<Lease, 'givenUp'>): Lease {
    const born = lease.acquire ?? lease.belief ?? lease.engine[0]
    if (born === undefined) return { ...lease, givenUp: null }
    const own = this.#byItsClient(lease, born)
    const others = this.#byOthers(lease, born)
    const [released, taken] = this.#byEngine(lease, born)
    const stamps = [...own, ...others]
    if (this.#exact) stamps.push(...released, ...taken)
    // An end that was only learnt later, and whose cause is not on record, may have come at any time before.
    else if ((released.length > 0 && own.length === 0) || (taken.length > 0 && others.length === 0))
      stamps.push(born)

    const first = stamps.reduce<Stamp | null>(
      (least, each) => (least && least.seq <= each.seq ? least : each),
      null,
    )
    return { ...lease, givenUp: first === null ? null : { seq: first.seq, at: first.at } }
  }

  #byItsClient(lease: Omit<Lease, 'givenUp'>, born: Stamp): Stamp[] {
    const stamps: Stamp[] = lease.operations.filter(({ op }) => op === 'release' || op === 'abandon')
    for (const close of this.#closes.get(lease.process) ?? []) stamps.push(...effectAfter(born, close))
    // A client that has stopped believing may release in the background, where no recorder sees it.
    if (lease.belief?.ended) stamps.push(lease.belief.ended)
    return stamps
  }

  #byOthers(lease: Omit<Lease, 'givenUp'>, born: Stamp): Stamp[] {
    const forces = (this.#forces.get(lease.name) ?? []).filter((force) => isAimedAt(force, lease))
    const meddled = this.#meddled.filter(
      ({ seq, name, process }) =>
        seq > born.seq && (name ?? lease.name) === lease.name && (process ?? lease.process) === lease.process,
    )
    return [...forces.flatMap((force) => effectAfter(born, force)), ...meddled]
  }

  /** The ends before its time that the engine told: by its client, and by others. */
  #byEngine(lease: Omit<Lease, 'givenUp'>, born: Stamp): [EngineEvent[], EngineEvent[]] {
    const later = lease.engine.filter(({ seq }) => seq > born.seq)
    const wiped = this.#wipes.filter(({ seq, name }) => seq > born.seq && (name ?? lease.name) === lease.name)
    return [
      later.filter(({ what }) => what === 'released'),
      [...later.filter(({ what }) => what === 'forced' || what === 'deleted'), ...wiped],
    ]
  }
}

/** From where on the operation may have met a lease that was asked for at `born`; nothing if it was over by then. */
function effectAfter(born: Stamp, operation: Operation): Stamp[] {
  if (operation.seq > born.seq) return [operation]
  return operation.outcome === 'unknown' || operation.returnedSeq > born.seq ? [born] : []
}
