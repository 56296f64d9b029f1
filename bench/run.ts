/** Measures one subject: rounds in which every contender has its turn, so that a noisy moment hits all alike. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { type ContestResult, runContest } from './contest.ts'
import { type HandOverSample, measureHandOver, waiters } from './hand-over.ts'
import { measure, median, type Sample } from './measure.ts'
import type { Comparison, Running, Subject } from './subject.ts'

export interface Effort {
  readonly seconds: number
  readonly rounds: number
}

export interface ContenderResult extends Sample {
  readonly name: string
  /** Pairs a second compared with the first contender: the median of what the rounds say, and their range. */
  readonly ratio: number
  readonly ratioLeast: number
  readonly ratioMost: number
  readonly rounds: readonly Sample[]
}

export interface ComparisonResult {
  readonly setting: string
  readonly atOnce: number
  readonly contenders: readonly ContenderResult[]
}

export interface HandOverResult extends HandOverSample {
  readonly processes: number
  readonly waiters: number
  readonly rounds: readonly HandOverSample[]
}

export interface SubjectResult {
  readonly name: string
  readonly raw: string
  readonly remarks: readonly string[]
  readonly effort: Effort
  readonly comparisons: readonly ComparisonResult[]
  readonly contest?: ContestResult
  readonly handOver: readonly HandOverResult[]
}

const usualAtOnce = [1, 64]
/** One after another, a library's code would still be compiled, on the core that is measured, when the rounds begin. */
const warmUpAtOnce = 64
const warmUpSeconds = 1
const settleSeconds = 0.2

export async function runSubject(
  name: string,
  subject: Subject,
  folder: string,
  effort: Effort,
  progress: (what: string) => void,
): Promise<SubjectResult> {
  const comparisons: ComparisonResult[] = []
  for (const [index, comparison] of subject.comparisons.entries()) {
    const say = (what: string) => progress(`${name}, ${comparison.setting}: ${what}`)
    comparisons.push(...(await compare(comparison, join(folder, `${name}-${index}`), effort, say)))
  }
  const contest =
    subject.contest &&
    (await runContest(subject.contest, effort, (what) => progress(`${name}, hand-over: ${what}`)))
  const handOver: HandOverResult[] = []
  const { url, processes: spreads } = subject.handOver ?? { url: () => '', processes: [] }
  for (const processes of spreads) {
    const say = (what: string) => progress(`${name}, hand-over, processes: ${processes}, ${what}`)
    const own = join(folder, `${name}-hand-over-${processes}`)
    handOver.push(await handOvers(url, processes, own, effort, say))
  }
  const { raw, remarks = [] } = subject
  return { name, raw, remarks, effort, comparisons, ...(contest && { contest }), handOver }
}

async function handOvers(
  url: (folder: string) => string,
  processes: number,
  folder: string,
  effort: Effort,
  progress: (what: string) => void,
): Promise<HandOverResult> {
  const rounds: HandOverSample[] = []
  for (let round = 1; round <= effort.rounds; round++) {
    progress(`round ${round} of ${effort.rounds}`)
    const own = join(folder, String(round))
    mkdirSync(own, { recursive: true })
    rounds.push(await measureHandOver(url(own), processes, effort.seconds))
  }
  return {
    processes,
    waiters,
    perSecond: median(rounds.map((sample) => sample.perSecond)),
    crossed: median(rounds.map((sample) => sample.crossed)),
    rounds,
  }
}

async function compare(
  { setting, contenders, atOnce: concurrencies = usualAtOnce }: Comparison,
  folder: string,
  { seconds, rounds }: Effort,
  progress: (what: string) => void,
): Promise<ComparisonResult[]> {
  const entrants: Entrant[] = []
  try {
    for (const { name, open } of contenders) {
      const own = join(folder, name)
      mkdirSync(own, { recursive: true })
      entrants.push({ name, running: await open(own) })
    }
    progress('warming up')
    for (const { running } of entrants) await measure(running, warmUpAtOnce, Math.min(warmUpSeconds, seconds))
    const results: ComparisonResult[] = []
    for (const atOnce of concurrencies) {
      for (const { running } of entrants) await measure(running, atOnce, Math.min(settleSeconds, seconds))
      const samples = new Map<Entrant, Sample[]>(entrants.map((entrant) => [entrant, []]))
      for (let round = 0; round < rounds; round++) {
        progress(`${atOnce} at once, round ${round + 1} of ${rounds}`)
        // Every other round backwards: nobody always comes first, or always after the same neighbour.
        const order = round % 2 === 0 ? entrants : entrants.toReversed()
        for (const entrant of order)
          samples.get(entrant)?.push(await measure(entrant.running, atOnce, seconds))
      }
      const [raw = []] = samples.values()
      const summaries = Array.from(samples, ([{ name }, own]) => summarise(name, own, raw))
      results.push({ setting, atOnce, contenders: summaries })
    }
    return results
  } finally {
    for (const { running } of entrants) await running.close()
  }
}

interface Entrant {
  readonly name: string
  readonly running: Running
}

function summarise(name: string, rounds: readonly Sample[], raw: readonly Sample[]): ContenderResult {
  const ratios = rounds.map(
    ({ pairsPerSecond }, round) => pairsPerSecond / (raw[round]?.pairsPerSecond ?? Number.NaN),
  )
  return {
    name,
    pairsPerSecond: median(rounds.map((sample) => sample.pairsPerSecond)),
    p50Ms: median(rounds.map((sample) => sample.p50Ms)),
    p99Ms: median(rounds.map((sample) => sample.p99Ms)),
    ratio: median(ratios),
    ratioLeast: Math.min(...ratios),
    ratioMost: Math.max(...ratios),
    rounds,
  }
}
