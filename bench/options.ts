/** The command line. */
import { tmpdir } from 'node:os'
import { parseArgs } from 'node:util'
import { fewestRounds } from './against/statistics.ts'

/** Of growth. */
const usualEngines = ['memory', 'sqlite', 'redis', 'postgres']
/** Recipes need tokens, and other processes to meet. */
const recipeEngines = ['sqlite', 'redis', 'postgres', 'etcd']
const usualSizes = [100, 1_000, 10_000]

export interface Options {
  readonly names: readonly string[]
  /** Cost against size, and nothing else. */
  readonly growth: boolean
  /** Recipes, and nothing else. */
  readonly recipes: boolean
  /** CPU time, bytes, commands and allocations of a pair, and nothing else. */
  readonly cost: boolean
  /** With cost: CPU profiles of the clients. */
  readonly profile: boolean
  /** Of what grows. */
  readonly sizes: readonly number[]
  /** The commit to compare with, as git understands it. */
  readonly against?: string
  /** With --against or cost: only workloads whose name contains this; with recipes, only such recipes. */
  readonly only?: string
  /** The round trip of a network between client and servers. */
  readonly rttMs?: number
  readonly rounds: number
  readonly seconds?: number
  readonly folder: string
  readonly save: boolean
  readonly json: boolean
}

export function usageOf(available: readonly string[]): string {
  return `npm run bench -- [options] backend…
npm run bench -- [options] growth [backend…]
npm run bench -- [options] recipes [backend…]
npm run bench -- [options] cost [backend…]
npm run bench -- http-guard

Pairs of acquire and release a second, one after another and many at once, and hand-overs under contention,
next to the raw statements in the same run. Backends: ${available.join(', ')}.

growth: what calls cost while names, leases, earlier leases, waiters, waiters that gave up and watchers become many; with the ratio
of the largest size to the smallest. Without a backend: ${usualEngines.join(', ')}.

recipes: take-over times of an election after kill -9 and after a resign, rebalance times of partitions, and what a tick of a
schedule costs. Without a backend: ${recipeEngines.join(', ')}.

cost: what one pair costs in CPU time of client and servers, bytes, commands, time in commands and allocated bytes, next to the raw
statements and other libraries. On a busy machine these say more than times do. Without a backend: all of them.

http-guard: what fences cost an HTTP service, in CPU time of its process, next to the same service without.

  --against ref    compare Holdfast here with Holdfast at another commit, in interleaved rounds, and nothing else;
                   exit code 0: pass, every median of the ratios new/old is at least 0.95; 1: fail, a median is below
                   0.95 and its interval is within ±10 %; 3: void, a 95 % interval is wider, and nothing failed
  --only text      with --against, cost or recipes: only the workloads or recipes whose name contains this text
  --profile        with cost: also write a CPU profile of each client to bench/profiles
  --rtt 2          a network between client and server: a round trip of so many ms, for every library alike
  --seconds 1      how long each measurement lasts (default: 1, or what suits the number of contenders;
                   with --against 0.25, with growth 0.5, with cost 0.3)
  --rounds 5       how often; medians are reported (with --against 15, and not fewer)
  --sizes ${usualSizes.join(',')}
                   with growth: how many of each; of watchers a hundredth
  --folder path    where files are made (default: the system's temporary folder)
  --save           also write bench/results/<backend>.md, .json and .svg; growth-<backend>.md,
                   cost-<backend>.md and so on
  --json           print JSON instead of tables
  --help           this text`
}

/** Returns `help`, or throws an error meant for the user. */
export function readOptions(args: readonly string[], available: readonly string[]): Options | 'help' {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      against: { type: 'string' },
      only: { type: 'string' },
      rtt: { type: 'string' },
      seconds: { type: 'string' },
      sizes: { type: 'string' },
      rounds: { type: 'string' },
      folder: { type: 'string', default: tmpdir() },
      profile: { type: 'boolean', default: false },
      save: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return 'help'
  const [kind] = positionals
  const [growth, recipes, cost] = [kind === 'growth', kind === 'recipes', kind === 'cost']
  const named = growth || recipes || cost ? positionals.slice(1) : positionals
  const usual = growth ? usualEngines : recipes ? recipeEngines : cost ? available : []
  const names = named.length === 0 ? usual : named
  for (const first of ['growth', 'recipes', 'cost'])
    if (names.includes(first)) throw new Error(`${first} comes first: npm run bench -- ${first} redis.`)
  const unknown = names.filter((name) => !available.includes(name))
  if (unknown.length > 0)
    throw new Error(`There is no ${unknown.join(', ')}; there are: ${available.join(', ')}.`)
  if (names.length === 0) throw new Error(`Name at least one backend: ${available.join(', ')}.`)

  const { against, only, folder, save, json, profile } = values
  if (against === undefined && only !== undefined && !recipes && !cost)
    throw new Error('--only is for --against, for cost and for recipes.')
  if (profile && !cost) throw new Error('--profile is for cost.')
  if (only !== undefined && save) throw new Error('--save is for all settings, and --only chooses some.')
  if (against !== undefined && save) throw new Error('--save is not for --against: print --json to a file.')
  if (growth || recipes) {
    const options = ['against', 'rtt', 'rounds', ...(recipes ? (['seconds', 'sizes'] as const) : [])] as const
    const unfit = options.filter((option) => values[option] !== undefined)
    if (unfit.length > 0) throw new Error(`--${unfit.join(' and --')} is not for ${kind}.`)
    const without = recipes ? names.filter((name) => !recipeEngines.includes(name)) : []
    if (without.length > 0)
      throw new Error(`Recipes are measured on ${recipeEngines.join(', ')}, not on ${without}.`)
  } else if (values.sizes !== undefined) throw new Error('--sizes is for growth.')
  const usualRounds = against === undefined ? 5 : fewestRounds
  const rounds = values.rounds === undefined ? usualRounds : Math.ceil(positive('rounds', values.rounds))
  if (against !== undefined && rounds < fewestRounds)
    throw new Error(`--against needs at least ${fewestRounds} rounds, not ${rounds}.`)
  return {
    names: [...new Set(names)],
    growth,
    recipes,
    cost,
    profile,
    sizes: values.sizes === undefined ? usualSizes : sizesOf(values.sizes),
    ...(against !== undefined && { against }),
    ...(only !== undefined && { only }),
    ...(values.rtt !== undefined && { rttMs: positive('rtt', values.rtt) }),
    rounds,
    ...(values.seconds !== undefined && { seconds: positive('seconds', values.seconds) }),
    folder,
    save,
    json,
  }
}

function sizesOf(text: string): number[] {
  const sizes = text.split(',').map(Number)
  const isAscending = sizes.every((size, index) => size > (sizes[index - 1] ?? 0))
  if (sizes.length < 2 || !isAscending || !sizes.every(Number.isSafeInteger))
    throw new Error(`--sizes must be two or more whole numbers in ascending order, not ${text}.`)
  return sizes
}

function positive(option: string, text: string): number {
  const value = Number(text)
  if (!(value > 0 && value < 3_600)) throw new Error(`--${option} must be a positive number, not ${text}.`)
  return value
}
