/** Measures one subject: rounds in which every contender has its turn, so that a noisy moment hits all alike. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
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
  readonly comparisons: readonly ComparisonResult[]
  readonly handOver: readonly HandOverResult[]
}

const concurrencies = [1, 64]

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
  const handOver: HandOverResult[] = []
  for (const processes of subject.handOver.processes) {
    const say = (what: string) => progress(`${name}, hand-over, processes: ${processes}, ${what}`)
    const own = join(folder, `${name}-hand-over-${processes}`)
    handOver.push(await handOvers(subject, processes, own, effort, say))
  }
  return { name, raw: subject.raw, comparisons, handOver }
}

async function handOvers(
  { handOver }: Subject,
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
    rounds.push(await measureHandOver(handOver.url(own), processes, effort.seconds))
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
  { setting, contenders }: Comparison,
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
    const results: ComparisonResult[] = []
    for (const atOnce of concurrencies) {
      progress(`${atOnce} at once, warming up`)
      for (const { running } of entrants) await measure(running, atOnce, Math.min(0.3, seconds))
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
