/** Options of `npm run sim`, checked: a batch that quietly ran other seeds than those asked for shows nothing. */
import { parseArgs } from 'node:util'
import { freshSeed } from './seeds.ts'
import { type Mode, type Workload, workloads } from './settings.ts'

export const usage = `npm run sim [-- options]

Runs the core over a simulated engine, each seed for 120 simulated seconds, and checks what it does.

  --seeds N      how many seeds (default 2000)
  --from S       the first of them (default 1)
  --fresh        seeds that were never tried, instead of --from; the first line says which, to run them again
  --workers N    processes to spread them over (default 2)
  --mode M       safety, guard or liveness only; by default each seed chooses
  --workload W   what the clients do: locks (default), election, partitions or schedules
  --seed S       replays one seed
  --keep LIST    with --seed: only these of its faults, as a report prints them
  --trace        with --seed: prints everything that happens
  --help         this text`

export type SimOptions =
  | { readonly kind: 'help' }
  | {
      readonly kind: 'replay'
      readonly seed: number
      readonly mode: Mode | undefined
      readonly workload: Workload | undefined
      readonly keep: string | undefined
      readonly trace: boolean
    }
  | {
      readonly kind: 'batch'
      readonly seeds: number
      readonly from: number
      readonly workers: number
      readonly mode: Mode | undefined
      readonly workload: Workload | undefined
    }

const modes: readonly Mode[] = ['safety', 'guard', 'liveness']

/** Throws an error that says what is wrong with the arguments. */
export function readSimOptions(args: readonly string[]): SimOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seeds: { type: 'string' },
      from: { type: 'string' },
      fresh: { type: 'boolean' },
      workers: { type: 'string' },
      mode: { type: 'string' },
      workload: { type: 'string' },
      seed: { type: 'string' },
      keep: { type: 'string' },
      trace: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  })
  if (values.help) return { kind: 'help' }
  const mode = readOneOf('mode', values.mode, modes)
  const workload = readOneOf('workload', values.workload, workloads)
  if (values.seed !== undefined) {
    for (const name of ['seeds', 'from', 'fresh', 'workers'] as const)
      if (values[name] !== undefined)
        throw new Error(
          `--seed replays one seed, so --${name} means nothing with it; leave out one of the two`,
        )
    const seed = readNumber('seed', values.seed, 0)
    return { kind: 'replay', seed, mode, workload, keep: values.keep, trace: values.trace ?? false }
  }
  if (values.keep !== undefined || values.trace !== undefined)
    throw new Error('--keep and --trace need --seed, which says what to replay')
  const seeds = readNumber('seeds', values.seeds ?? '2000', 1)
  if (values.fresh && values.from !== undefined)
    throw new Error(
      '--fresh chooses the first seed, so --from means nothing with it; leave out one of the two',
    )
  const from = values.fresh ? freshSeed() : readNumber('from', values.from ?? '1', 1)
  if (!Number.isSafeInteger(from + seeds)) throw new Error('seeds must stay below 2^53')
  const workers = readNumber('workers', values.workers ?? '2', 1)
  return { kind: 'batch', seeds, from, workers, mode, workload }
}

function readNumber(name: string, text: string, least: number): number {
  const number = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (!(number >= least))
    throw new Error(`--${name} must be a whole number of at least ${least}, not ${text}`)
  if (!Number.isSafeInteger(number)) throw new Error(`--${name} must stay below 2^53, which ${text} does not`)
  return number
}

function readOneOf<T extends string>(
  option: string,
  text: string | undefined,
  known: readonly T[],
): T | undefined {
  const found = known.find((each) => each === text)
  if (text !== undefined && found === undefined)
    throw new Error(`no ${option} ${text}, there are ${known.join(', ')}`)
  return found
}
