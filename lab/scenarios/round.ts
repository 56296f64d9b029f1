/** One run of a scenario, with or without the guard: from its processes to what the checkers say about its history. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sqlite } from '../../packages/holdfast/src/backends/sqlite/index.ts'
import { sleep, systemClock } from '../../packages/holdfast/src/core/clock.ts'
import { createLocker } from '../../packages/holdfast/src/core/locker.ts'
import type { History, Report } from '../check/index.ts'
import { Crew, type Stop } from './crew.ts'
import { judge, type Surroundings, toHistory } from './judging.ts'
import { lockName, type Note, resourceName } from './messages.ts'
import { nowMs } from './observer.ts'
import { openResource, readEntries } from './resource.ts'
import type { Scenario } from './scenario.ts'

export interface Refusal {
  readonly client: string
  readonly access: string
  readonly token: bigint
  readonly highest: bigint
  readonly at: number
}

/** All times in milliseconds since its start. */
export interface Round {
  readonly guarded: boolean
  readonly tookMs: number
  readonly stops: readonly Stop[]
  /** The entries that somebody was told are written. */
  readonly acknowledged: readonly string[]
  /** Nobody was told anything about these. */
  readonly unknown: readonly string[]
  /** What the resource holds in the end. */
  readonly found: readonly string[]
  /** Acknowledged, and not found. */
  readonly lost: readonly string[]
  readonly refusals: readonly Refusal[]
  readonly history: History
  readonly checks: Report
}

export async function runRound(
  scenario: Scenario,
  guarded: boolean,
  say: (line: string) => void,
): Promise<Round> {
  const { clients, ttlMs } = scenario
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-lab-'))
  const files = { locks: join(folder, 'locks.db'), resource: join(folder, resourceName) }
  // Made before the clients come: two that change the journal of a new file at once do not wait for each other.
  openResource(files.resource).close()
  const crew = new Crew(clients, { ...files, guarded, ttlMs })
  const remove = () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
  const onExit = () => {
    crew.endNow()
    remove()
  }
  process.on('exit', onExit)
  try {
    await crew.start()
    const stopMeasuring = measureLag()
    const outcomes = new Map<string, string>()
    crew.onReport((_client, report) => {
      if (report.kind === 'done') outcomes.set(report.entry, report.outcome)
    })
    await scenario.play(crew, say)
    const closed = clients.map((client) => crew.next(client, 'closed'))
    for (const client of clients) crew.order(client, { kind: 'finish' })
    await Promise.all(closed)
    const surroundings = await lookAtTheEnd(files.locks, ttlMs, stopMeasuring())
    const entries = (wanted: string) => [...outcomes].flatMap(([entry, is]) => (is === wanted ? [entry] : []))
    const acknowledged = entries('written')
    const found = entriesIn(files.resource)
    const final = { kind: 'final', at: nowMs(), resource: resourceName, entries: found } as const
    surroundings.notes.push({ ...final, value: found.at(-1) ?? 'nothing' })
    const history = toHistory(crew, surroundings)
    return {
      guarded,
      tookMs: nowMs() - crew.startedAt,
      stops: crew.stops.map(({ client, from, until }) => ({
        client,
        from: from - crew.startedAt,
        until: until - crew.startedAt,
      })),
      acknowledged,
      unknown: entries('unknown'),
      found,
      lost: acknowledged.filter((entry) => !found.includes(entry)),
      refusals: refusalsIn(history),
      history,
      checks: judge(history, guarded),
    }
  } finally {
    process.off('exit', onExit)
    await crew.end()
    remove()
  }
}

/** After all have closed: what the engine still has, at once and, should there be anything, when it has to be gone. */
async function lookAtTheEnd(path: string, ttlMs: number, lagMs: number): Promise<Surroundings> {
  const locker = createLocker(sqlite({ path }), { holder: 'observer' })
  try {
    const notes: Note[] = [{ kind: 'quiet', at: nowMs(), name: lockName }]
    for (let looks = 0; looks < 2; looks++) {
      const askedAt = nowMs()
      const state = await locker.inspect(lockName)
      const holders = (state?.holders ?? []).map(({ id, holder }) => ({ leaseId: id, process: holder }))
      const waiters = (state?.waiters ?? []).map(({ id, holder }) => ({ leaseId: id, process: holder }))
      notes.push({ kind: 'snapshot', at: nowMs(), name: lockName, askedAt, holders, waiters })
      if (holders.length + waiters.length === 0) break
      await sleep(systemClock, ttlMs + locker.info.expirySlackMs, { keepsProcessAlive: true })
    }
    return { notes, info: locker.info, lagMs }
  } finally {
    await locker.close()
  }
}

function entriesIn(path: string): string[] {
  const database = openResource(path)
  try {
    return readEntries(database)
  } finally {
    database.close()
  }
}

function refusalsIn({ guard }: History): Refusal[] {
  return guard
    .filter(({ verdict }) => verdict === 'refused')
    .map(({ process: client = '', access = 'read', token, highest = 0n, at }) => ({
      client,
      access,
      token,
      highest,
      at,
    }))
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
