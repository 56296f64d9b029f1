/** The workloads that `--against` measures of a subject: all that Holdfast does in it. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { measureContest } from '../contest.ts'
import { waiters as handOverWaiters, measureHandOver } from '../hand-over.ts'
import { measure } from '../measure.ts'
import { type Comparison, type Contender, isOurs, type Subject } from '../subject.ts'

export interface Workload {
  readonly name: string
  /** `folder` is empty and its own. */
  open(folder: string): Promise<OpenWorkload>
}

export interface OpenWorkload {
  warmUp(seconds: number): Promise<void>
  /** How many a second. */
  rate(seconds: number): Promise<number>
  close(): Promise<void>
}

const manyAtOnce = 64

/** The same list, in the same order, in every process. */
export function workloadsOf(subject: Subject): Workload[] {
  const pairs = subject.comparisons.flatMap((comparison) =>
    comparison.contenders
      .filter(({ name }) => isOurs(name))
      .flatMap((contender) => [1, manyAtOnce].map((atOnce) => pairsOf(comparison, contender, atOnce))),
  )
  return [...pairs, ...contestsOf(subject), ...handOversOf(subject)]
}

function pairsOf({ setting }: Comparison, { name, open }: Contender, atOnce: number): Workload {
  return {
    name: `${setting}, ${name}, ${atOnce === 1 ? 'one after another' : `${atOnce} at once`}`,
    async open(folder) {
      const running = await open(folder)
      return {
        async warmUp(seconds) {
          await measure(running, manyAtOnce, seconds)
          await measure(running, atOnce, seconds / 4)
        },
        rate: async (seconds) => (await measure(running, atOnce, seconds)).pairsPerSecond,
        close: () => running.close(),
      }
    },
  }
}

function contestsOf({ contest }: Subject): Workload[] {
  if (contest === undefined) return []
  return contest.takers
    .filter(({ name }) => isOurs(name))
    .map((taker) => ({
      name: `hand-over, ${taker.name}`,
      open: async () => ({
        // It opens anew for each measurement, and begins to count after a while.
        async warmUp() {},
        rate: async (seconds) => (await measureContest(contest, taker, seconds)).perSecond,
        async close() {},
      }),
    }))
}

function handOversOf({ handOver }: Subject): Workload[] {
  return (handOver?.processes ?? []).map((processes) => ({
    name: `hand-over, ${handOverWaiters} waiters in ${processes === 1 ? 'one process' : `${processes} processes`}`,
    async open(folder) {
      let rounds = 0
      return {
        async warmUp() {},
        async rate(seconds) {
          const own = join(folder, String(rounds++))
          mkdirSync(own)
          return (await measureHandOver(handOver?.url(own) ?? '', processes, seconds)).perSecond
        },
        async close() {},
      }
    },
  }))
}
