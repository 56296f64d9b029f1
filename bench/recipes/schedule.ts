/** The cost of one tick of a schedule with 20 replicas, in calls of the lockers and in commands that the engine gets. */
import { createLocker, type Locker } from 'holdfast'
import { type TickOutcome, tickRunner } from 'holdfast/recipes/schedule'
import { openBackend } from 'holdfast/spi'
import { type FaultyBackend, faultyBackend } from 'holdfast/testing'
import { redisCall } from 'holdfast-lab/servers'
import type { RecipeBench, RecipeEngine } from './recipe-bench.ts'

const REPLICAS = 20
const TICKS = 20
const JOB_MS = 20

interface Replica {
  readonly wire: FaultyBackend
  readonly locker: Locker
  readonly statistics: () => number
}

export const bench: RecipeBench = {
  async run(engine, progress) {
    const rows = [
      ['policy', 'calls of all', 'of the runner', 'of another, at most', 'commands at the engine'],
    ]
    for (const policy of ['skip', 'rerun'] as const) {
      progress(`a tick with ${REPLICAS} replicas, ${policy}`)
      rows.push([policy, ...(await measure(engine, policy))])
    }
    return [
      {
        title: `one tick of a schedule with ${REPLICAS} replicas`,
        rows,
        remarks: [
          `Means of ${TICKS} ticks, without renewals`,
          'Each call of a locker is one round trip, and calls of one moment may share one',
          'With rerun one replica stands by',
        ],
      },
    ]
  },
}

async function measure(engine: RecipeEngine, policy: 'skip' | 'rerun'): Promise<string[]> {
  const replicas = await Promise.all(Array.from({ length: REPLICAS }, () => open(engine)))
  try {
    const name = `report/${policy}`
    const runners = replicas.map(({ locker }) =>
      tickRunner(
        locker,
        { name, policy, allowUnfenced: true },
        () => new Promise((end) => setTimeout(end, JOB_MS)),
      ),
    )
    const run = (tick: number) => Promise.all(runners.map((each) => each.run(tick)))
    // Opens the sessions.
    await run(0)
    const callsBefore = replicas.map(callsOf)
    const before = await commandsOf(engine, replicas)
    let ofRunners = 0
    let mostOfOthers = 0
    let all = 0
    for (let tick = 1; tick <= TICKS; tick++) {
      const outcomes: readonly TickOutcome[] = await run(tick)
      if (outcomes.filter((outcome) => outcome === 'ran').length !== 1)
        throw new Error(`Tick ${tick} ran on other than one replica: ${outcomes.join(' ')}`)
      const calls = replicas.map((replica, index) => callsOf(replica) - (callsBefore[index] ?? 0))
      for (const [index, count] of calls.entries()) {
        callsBefore[index] = (callsBefore[index] ?? 0) + count
        all += count
        if (outcomes[index] === 'ran') ofRunners += count
        else mostOfOthers = Math.max(mostOfOthers, count)
      }
    }
    const commands = (await commandsOf(engine, replicas)) - before
    return [all / TICKS, ofRunners / TICKS, mostOfOthers, commands / TICKS].map((count) => count.toFixed(1))
  } finally {
    await Promise.all(replicas.map(({ locker }) => locker.close()))
  }
}

async function open({ url }: RecipeEngine): Promise<Replica> {
  const backend = await openBackend(url)
  const wire = faultyBackend(backend)
  // The backends count for their own tests; Redis counts at the server.
  const counting = backend as unknown as { readonly statistics?: Readonly<Record<string, number>> }
  const statistics = () => (counting.statistics?.sent ?? 0) + (counting.statistics?.statements ?? 0)
  return { wire, locker: createLocker(wire, { ttlMs: 60_000 }), statistics }
}

function callsOf({ wire }: Replica): number {
  return wire.log.filter(({ kind }) => kind !== 'keepAlive').length
}

async function commandsOf({ name, url }: RecipeEngine, replicas: readonly Replica[]): Promise<number> {
  if (name !== 'redis') return replicas.reduce((sum, { statistics }) => sum + statistics(), 0)
  const { hostname, port } = new URL(url)
  const report = String(await redisCall({ host: hostname, port: Number(port) }, 'INFO', 'commandstats'))
  // Of commands in scripts the server counts each as well; only the calls of scripts are round trips.
  return [...report.matchAll(/^cmdstat_evalsha(?:_ro)?:calls=(\d+)/gm)].reduce(
    (sum, [, calls]) => sum + Number(calls),
    0,
  )
}
