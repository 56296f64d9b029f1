/**
 * G6: an acquire that is cancelled, times out or ends unknown leaves neither holder nor waiter for longer than the TTL
 * after its request lands (or after the client gave up, if that was later: until then it is no leftover).
 *
 * Leftovers are looked for in the engine's events, and in snapshots. What was asked for before a quiet marker is a
 * leftover after it, whoever asked.
 */
import { at, describeOperation, type Finding, Findings, ms } from './findings.ts'
import type { EngineEvent, History, Operation, QuietEvent, SnapshotEvent } from './history.ts'
import { type Lease, leasesOf } from './leases.ts'

export function checkNothingLeft(history: History): Finding {
  const found = new Findings('G6')
  const judge = new Judge(history, found)
  for (const lease of leasesOf(history).values()) for (const stay of staysOf(lease)) judge.stay(lease, stay)
  for (const snapshot of history.snapshots) judge.snapshot(snapshot)
  if (history.engine.length === 0 && history.snapshots.length === 0)
    found.leaveOpen('neither engine events nor snapshots are on record')
  return found.done()
}

/** The time that one landing of a request stayed in the engine, as waiter and as holder. */
interface Stay {
  readonly landed: EngineEvent
  readonly ended: EngineEvent | null
}

function staysOf(lease: Lease): Stay[] {
  const stays: Stay[] = []
  let landed: EngineEvent | null = null
  for (const event of lease.engine) {
    if (event.what === 'granted' || event.what === 'enqueued') landed ??= event
    else if (event.what !== 'renewed' && landed !== null) {
      stays.push({ landed, ended: event })
      landed = null
    }
  }
  return landed === null ? stays : [...stays, { landed, ended: null }]
}

class Judge {
  readonly #history: History
  readonly #found: Findings
  readonly #slackMs: number
  readonly #longestTtlMs: number | undefined
  readonly #crashes: ReadonlyMap<string | undefined, number>
  readonly #operations: ReadonlyMap<string, readonly Operation[]>

  constructor(history: History, found: Findings) {
    this.#history = history
    this.#found = found
    this.#slackMs = history.about.expirySlackMs ?? 0
    for (const { ttlMs } of [...history.operations, ...history.engine])
      if (ttlMs !== undefined) this.#longestTtlMs = Math.max(ttlMs, this.#longestTtlMs ?? 0)
    const crashes = history.faults.filter(({ what }) => what === 'crash')
    this.#crashes = new Map(crashes.map(({ process, at }) => [process, at]))
    this.#operations = Map.groupBy(history.operations, ({ name }) => name)
  }

  stay(lease: Lease, { landed, ended }: Stay): void {
    const { engineTimes } = this.#history.about
    const since = this.#gaveUpAt(lease) ?? this.#quietAfter(lease.name, lease.acquire ?? landed)?.at
    // A client that got its lease answers for it elsewhere.
    if (since === undefined) return
    const limit = this.#limit(Math.max(since, landed.at), landed.ttlMs ?? lease.acquire?.ttlMs)
    if (limit === null) return
    const endedAt = ended?.at ?? Infinity
    if (endedAt <= limit) this.#found.judged()
    else if (ended !== null && engineTimes !== 'exact')
      this.#found.leaveOpen('the end of a leftover was learnt late, and may have been in time')
    else if (this.#history.endedAt <= limit)
      this.#found.leaveOpen('the history ends before a leftover had to be gone')
    else {
      this.#found.judged()
      const was = landed.what === 'granted' ? 'holder' : 'waiter'
      const until =
        ended === null ? `was still there at ${ms(this.#history.endedAt)}` : `was ${ended.what} ${at(ended)}`
      this.#found.violated(
        lease.name,
        `${describe(lease)} left a ${was} behind: it landed ${at(landed)}, had to be gone by ${ms(limit)}, and ${until}.`,
        [lease.id, lease.acquire?.id],
      )
    }
  }

  snapshot(snapshot: SnapshotEvent): void {
    // That nothing was found is a finding too.
    this.#found.judged()
    for (const { leaseId } of snapshot.holders) this.#claimant(snapshot, 'holder', leaseId)
    for (const { leaseId } of snapshot.waiters) this.#claimant(snapshot, 'waiter', leaseId)
  }

  #claimant(snapshot: SnapshotEvent, was: string, leaseId: string): void {
    const lease = leasesOf(this.#history).get(leaseId)
    const released = lease?.operations.find(
      ({ op, outcome, returnedSeq, returnedAt }) =>
        op === 'release' && outcome === 'ok' && returnedSeq < snapshot.seq && returnedAt <= snapshot.askedAt,
    )
    const limit = this.#limitIn(snapshot, lease)
    const why =
      released !== undefined
        ? `although ${describeOperation(released)} had released it`
        : limit !== null && snapshot.askedAt > limit
          ? `although it had to be gone by ${ms(limit)}`
          : null
    if (why === null) return
    this.#found.violated(
      snapshot.name,
      `${leaseId} was left behind as a ${was} of ${JSON.stringify(snapshot.name)}: the snapshot asked for ` +
        `at ${ms(snapshot.askedAt)} shows it, ${why}.`,
      [leaseId],
    )
  }

  #limitIn(snapshot: SnapshotEvent, lease: Lease | undefined): number | null {
    const quiet = this.#quietAfter(snapshot.name, lease?.acquire, snapshot)
    const ttlMs = lease?.acquire?.ttlMs
    if (quiet !== undefined) return this.#limit(quiet.at, ttlMs)
    const gaveUpAt = lease === undefined ? undefined : this.#gaveUpAt(lease)
    if (gaveUpAt === undefined) return null
    const landed = lease?.engine.findLast(({ what }) => what === 'granted' || what === 'enqueued')
    if (landed !== undefined) return this.#limit(Math.max(landed.at, gaveUpAt), ttlMs)
    if (lease?.acquire?.outcome === 'fail') return this.#limit(gaveUpAt, ttlMs)
    this.#found.leaveOpen('a snapshot shows an unknown acquire, and when its request landed is not known')
    return null
  }

  #limit(since: number, ttlMs = this.#longestTtlMs): number | null {
    if (ttlMs !== undefined) return since + ttlMs + this.#slackMs
    this.#found.leaveOpen('a leftover whose TTL is not known')
    return null
  }

  /** When the client stopped wanting what its acquire had asked for; undefined if it got it, or still wants it. */
  #gaveUpAt({ operations, belief }: Lease): number | undefined {
    const acquires = operations.filter(({ op }) => op === 'acquire')
    const last = acquires.at(-1)
    if (last === undefined || belief !== undefined || acquires.some(({ outcome }) => outcome === 'ok'))
      return undefined
    return last.returnedAt < Infinity ? last.returnedAt : this.#crashes.get(last.process)
  }

  /**
   * The first quiet marker after something was asked for. Where it is not known when that was, the marker counts only
   * if nobody has asked for anything between it and the snapshot.
   */
  #quietAfter(
    name: string,
    asked: { readonly seq: number } | undefined,
    before?: SnapshotEvent,
  ): QuietEvent | undefined {
    return this.#history.quiet.find((quiet) => {
      if ((quiet.name ?? name) !== name || quiet.seq > (before?.seq ?? Infinity)) return false
      if (asked !== undefined) return quiet.seq > asked.seq
      const since = this.#operations
        .get(name)
        ?.some(({ seq }) => seq > quiet.seq && seq < (before?.seq ?? Infinity))
      return !since
    })
  }
}

function describe(lease: Lease): string {
  return lease.acquire === undefined ? `${lease.id} of ${lease.process}` : describeOperation(lease.acquire)
}
