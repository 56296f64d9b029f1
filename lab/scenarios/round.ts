/** One run of a scenario, with or without protection: from its processes to what the checkers say about its history. */
import type { BackendInfo } from '../../packages/holdfast/src/spi.ts'
import type { History, Report } from '../check/index.ts'
import { Crew } from './crew.ts'
import type { Engine, FaultName } from './engines/engine.ts'
import type { Incident } from './incidents.ts'
import { judge, timesTwoBelieved, toHistory } from './judging.ts'
import { lookAtTheEnd } from './leftovers.ts'
import { type Refused, resourceName } from './messages.ts'
import { nowMs } from './observer.ts'
import { loadResource } from './resources/index.ts'
import type { Protection, Resource, RunningResource } from './resources/resource.ts'
import type { Scenario } from './scenario.ts'

export interface Refusal extends Omit<Refused, 'kind'> {
  readonly client: string
}

/** All times in milliseconds since its start. */
export interface Round {
  readonly protection: Protection
  readonly tookMs: number
  readonly incidents: readonly Incident[]
  /** The sentence of `info.assumptions` that was made untrue on purpose. */
  readonly broken: string | null
  /** The entries that a client was told are written. */
  readonly acknowledged: readonly string[]
  /** No client was told anything about these. */
  readonly unknown: readonly string[]
  /** Entries of the resource in the end. */
  readonly found: readonly string[]
  /** Acknowledged, and not found. */
  readonly lost: readonly string[]
  readonly refusals: readonly Refusal[]
  readonly timesTwoBelieved: number
  readonly history: History
  readonly checks: Report
}

export interface RoundOptions {
  readonly scenario: Scenario
  readonly engine: Engine
  readonly protection: Protection
  readonly say: (line: string) => void
}

export async function runRound({ scenario, engine, protection, say }: RoundOptions): Promise<Round> {
  const { clients, ttlMs, fault } = scenario
  await using stack = new AsyncDisposableStack()
  const running = stack.use(await engine.start({ clients, fault }))
  const kind = await loadResource(engine.resource)
  const resource = stack.use(await kind.start(running))
  const crew = new Crew({
    clients,
    setupOf: (client) => ({
      client,
      engine: engine.name,
      addresses: running.addressesFor(client),
      resource: { name: kind.name, addresses: resource.addresses },
      protection,
      ttlMs,
    }),
    isBlocked: async () => (await running.isBlocked?.()) === true || (await resource.isBlocked?.()) === true,
  })
  // Before the files are removed, which the listeners that were added earlier do.
  const onExit = () => crew.endNow()
  process.prependListener('exit', onExit)
  stack.defer(async () => {
    process.off('exit', onExit)
    await crew.end()
  })
  const collected = collect(crew)
  say(`${engine.name} is up; ${clients.length} clients are started`)
  await crew.start()
  const stopMeasuring = measureLag()
  await scenario.play({ crew, engine: running, ttlMs, say })
  await finish(crew)
  const surroundings = { ...(await lookAtTheEnd(engine, running, ttlMs)), lagMs: stopMeasuring(), ttlMs }
  const found = await entriesIn(kind, resource)
  const final = { kind: 'final', at: nowMs(), resource: resourceName, entries: found } as const
  surroundings.notes.push({ ...final, value: found.at(-1) ?? 'nothing' })

  const history = toHistory(crew, surroundings)
  const incidents = crew.incidents.all.map((each) => ({
    ...each,
    from: each.from - crew.startedAt,
    until: each.until - crew.startedAt,
  }))
  const broken = fault === null ? null : brokenBy(engine, fault, surroundings.info)
  const moments = incidents.filter(({ what }) => what === 'assumption').map(({ from }) => from)
  const brokenAt = broken === null ? null : moments
  const checks = judge(history, { protection, info: surroundings.info, brokenAt })
  const acknowledged = collected.entries('written')
  return {
    protection,
    tookMs: nowMs() - crew.startedAt,
    incidents,
    broken,
    acknowledged,
    unknown: collected.entries('unknown'),
    found,
    lost: acknowledged.filter((entry) => !found.includes(entry)),
    refusals: collected.refusals,
    timesTwoBelieved: timesTwoBelieved(checks),
    history,
    checks,
  }
}

/** Collects the facts that clients tell besides their part of the history. */
function collect(crew: Crew): {
  readonly refusals: readonly Refusal[]
  entries(outcome: string): string[]
} {
  const outcomes = new Map<string, string>()
  const refusals: Refusal[] = []
  crew.onReport((client, report) => {
    if (report.kind === 'done') outcomes.set(report.entry, report.outcome)
    if (report.kind !== 'refused') return
    const { kind: _kind, ...refused } = report
    refusals.push({ ...refused, client, at: refused.at - crew.startedAt })
  })
  const entries = (wanted: string) => [...outcomes].flatMap(([entry, is]) => (is === wanted ? [entry] : []))
  return { refusals, entries }
}

async function finish(crew: Crew): Promise<void> {
  const closed = crew.clients.map((client) => crew.next(client, 'closed'))
  for (const client of crew.clients) crew.order(client, { kind: 'finish' })
  await Promise.all(closed)
}

/** An engine that breaks by something of which it does not warn its users has failed. */
export function brokenBy(
  { assumes, name }: Engine,
  fault: FaultName,
  { assumptions }: Pick<BackendInfo, 'assumptions'>,
): string | null {
  const pattern = assumes[fault]
  if (pattern === undefined) return null
  const sentence = assumptions.find((each) => pattern.test(each))
  if (sentence === undefined)
    throw new Error(`${name} does not say in info.assumptions what ${fault} breaks.`)
  return sentence
}

async function entriesIn(kind: Resource, { addresses }: RunningResource): Promise<readonly string[]> {
  const opened = await kind.open(addresses, 'none')
  try {
    return (await opened.read(undefined)).entries
  } finally {
    await opened.close()
  }
}

/** By how much this process came late at worst, which is how late others may come on this machine as it is now. */
function measureLag(): () => number {
  const everyMs = 20
  let worst = 0
  let before = nowMs()
  const ticker = setInterval(() => {
    const now = nowMs()
    worst = Math.max(worst, now - before - everyMs)
    before = now
  }, everyMs)
  ticker.unref()
  return () => {
    clearInterval(ticker)
    return worst
  }
}
