/**
 * Holdfast here against Holdfast at another commit. In every round both have their turn, and the order alternates. The
 * rounds of a workload are spread over several pairs of processes: how fast a process runs is partly luck for as long as
 * it lives, and rounds within one would all have the same luck.
 */
import { join } from 'node:path'
import { type Backend, startBackend } from '../backend.ts'
import { median } from '../measure.ts'
import type { Effort } from '../run.ts'
import { Side } from './side.ts'
import { type Finding, judge } from './statistics.ts'
import { workloadsOf } from './workloads.ts'

export interface WorkloadResult extends Finding {
  readonly name: string
  /** Medians, a second. */
  readonly newPerSecond: number
  readonly oldPerSecond: number
  readonly rounds: readonly Round[]
}

export interface Round {
  readonly newPerSecond: number
  readonly oldPerSecond: number
}

export interface AgainstResult {
  readonly name: string
  readonly remarks: readonly string[]
  readonly effort: Effort
  readonly workloads: readonly WorkloadResult[]
}

/** The folders of the two packages. */
export interface Packages {
  readonly new: string
  readonly old: string
}

const roundsPerProcess = 5
const warmUpSeconds = 0.5

export async function runAgainst(
  name: string,
  packages: Packages,
  folder: string,
  effort: Effort,
  progress: (what: string) => void,
  { rttMs, only = '' }: { rttMs: number | undefined; only: string | undefined },
): Promise<AgainstResult> {
  const backend = await startBackend(name, rttMs)
  try {
    return await compare(name, backend, packages, folder, effort, only, (what) =>
      progress(`${name}, ${what}`),
    )
  } finally {
    await backend.stop()
  }
}

async function compare(
  name: string,
  backend: Backend,
  packages: Packages,
  folder: string,
  effort: Effort,
  only: string,
  progress: (what: string) => void,
): Promise<AgainstResult> {
  const places = { new: await backend.place('new'), old: await backend.place('old') }
  const subject = backend.subject(places.new)
  const workloads = workloadsOf(subject)
    .map(({ name }, index) => ({ name, index, rounds: [] as Round[] }))
    .filter(({ name }) => name.includes(only))
  if (workloads.length === 0)
    throw new Error(`No workload of ${name} has ${JSON.stringify(only)} in its name.`)

  for (let done = 0; done < effort.rounds; done += roundsPerProcess) {
    const until = Math.min(effort.rounds, done + roundsPerProcess)
    const start = (side: 'new' | 'old') =>
      Side.start(packages[side], {
        backend: name,
        place: places[side],
        folder: join(folder, `${name}-${side}-${done}`),
      })
    const fresh = await start('new')
    try {
      const former = await start('old')
      try {
        for (const { name: what, index, rounds } of workloads) {
          progress(`rounds ${done + 1} to ${until} of ${effort.rounds}: ${what}`)
          rounds.push(...(await interleave(fresh, former, index, { from: done, until }, effort.seconds)))
        }
      } finally {
        former.end()
      }
    } finally {
      fresh.end()
    }
  }
  const { remarks = [] } = subject
  const results = workloads.map((workload) => summarise(workload.name, workload.rounds))
  return { name, remarks: [...backend.remarks, ...remarks], effort, workloads: results }
}

async function interleave(
  fresh: Side,
  former: Side,
  workload: number,
  { from, until }: { from: number; until: number },
  seconds: number,
): Promise<Round[]> {
  const rounds: Round[] = []
  for (const side of [fresh, former]) await side.open(workload, Math.min(warmUpSeconds, 2 * seconds))
  for (let round = from; round < until; round++) {
    const isNewFirst = round % 2 === 0
    const first = await (isNewFirst ? fresh : former).rate(seconds)
    const second = await (isNewFirst ? former : fresh).rate(seconds)
    rounds.push({
      newPerSecond: isNewFirst ? first : second,
      oldPerSecond: isNewFirst ? second : first,
    })
  }
  for (const side of [fresh, former]) await side.close()
  return rounds
}

function summarise(name: string, rounds: readonly Round[]): WorkloadResult {
  return {
    name,
    ...judge(rounds.map(({ newPerSecond, oldPerSecond }) => newPerSecond / oldPerSecond)),
    newPerSecond: median(rounds.map((round) => round.newPerSecond)),
    oldPerSecond: median(rounds.map((round) => round.oldPerSecond)),
    rounds,
  }
}
