/**
 * What one pair costs: CPU time, bytes, commands and allocations, which a busy machine disturbs less than the time of a pair. Each
 * contender runs in a process of its own; they take turns in rounds, and each ratio is of two neighbours in one round.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { intervalOfMedian, judge, overall, type Verdict } from '../against/statistics.ts'
import { type Backend, startBackend } from '../backend.ts'
import { startCpuWatch } from '../growth/cpu.ts'
import { median } from '../measure.ts'
import type { Effort } from '../run.ts'
import { type Commands, isOurs, type Place, type Subject } from '../subject.ts'
import type { ClientCost } from './meters.ts'
import { Side } from './side.ts'

/** The measures, each for one pair: microseconds, commands, bytes. */
export const measures = [
  'client',
  'user',
  'system',
  'servers',
  'in commands',
  'commands',
  'sent',
  'received',
  'allocated',
] as const

export type Measure = (typeof measures)[number]

/** Of one pair in one round. Null: it cannot be known. */
export type PairCost = Readonly<Record<Measure, number | null>>

export interface MeasureResult {
  readonly value: number
  /** Compared with the first contender: the median of the rounds' ratios; null where the first has nothing of it. */
  readonly ratio: number | null
  /** With --against: the 95 % interval of the ratio, and the verdict. */
  readonly low?: number
  readonly high?: number
  readonly verdict?: Verdict
}

export interface ContenderCost {
  readonly name: string
  readonly costs: Readonly<Partial<Record<Measure, MeasureResult>>>
  readonly rounds: readonly PairCost[]
}

export interface ComparisonCost {
  readonly setting: string
  readonly atOnce: number
  readonly contenders: readonly ContenderCost[]
}

export interface CostResult {
  readonly name: string
  readonly raw: string
  readonly remarks: readonly string[]
  readonly effort: Effort
  readonly comparisons: readonly ComparisonCost[]
}

export interface CostOptions extends Effort {
  readonly rttMs: number | undefined
  /** Only comparisons and contenders with this in `<setting>, <name>`. The first contender always takes part. */
  readonly only: string | undefined
  /** The folder of the profiles. */
  readonly profiles: string | undefined
}

/** The packages that are compared: one, or with --against two. */
export interface CostPackages {
  readonly new: string
  readonly old?: string
}

const usualAtOnce = [1, 64]
const warmUpSeconds = 1
const settleSeconds = 0.2
const pairsOfProbe = 5

interface Entrant {
  readonly name: string
  readonly side: Side
  readonly commands: () => Promise<Commands | null>
}

/** Who is compared with the first of them. */
interface Group {
  readonly setting: string
  readonly comparison: number
  readonly atOnce: readonly number[]
  readonly members: readonly {
    readonly name: string
    readonly contender: number
    readonly package: string
    readonly place: Place
  }[]
}

export async function runCost(
  name: string,
  packages: CostPackages,
  folder: string,
  options: CostOptions,
  progress: (what: string) => void,
): Promise<CostResult> {
  const backend = await startBackend(name, options.rttMs, { countsCommands: true })
  try {
    const places = {
      new: await backend.place('new'),
      old: packages.old === undefined ? undefined : await backend.place('old'),
    }
    const subject = backend.subject(places.new)
    const groups = groupsOf(subject, packages, places).flatMap((group) => narrowed(group, options.only ?? ''))
    if (groups.length === 0)
      throw new Error(`Nothing of ${name} has ${JSON.stringify(options.only)} in its name.`)
    const comparisons: ComparisonCost[] = []
    for (const [index, group] of groups.entries()) {
      const say = (what: string) => progress(`${name}, ${group.setting}: ${what}`)
      const own = join(folder, `${name}-cost-${index}`)
      comparisons.push(...(await measureGroup(name, backend, group, own, options, packages, say)))
    }
    const { seconds, rounds } = options
    const remarks = [...backend.remarks, ...(subject.remarks ?? [])]
    return { name, raw: subject.raw, remarks, effort: { seconds, rounds }, comparisons }
  } finally {
    await backend.stop()
  }
}

function groupsOf(
  { comparisons }: Subject,
  packages: CostPackages,
  places: { readonly new: Place; readonly old: Place | undefined },
): Group[] {
  return comparisons.flatMap(({ setting, contenders, atOnce = usualAtOnce }, comparison) => {
    const all = contenders.map(({ name }, contender) => ({
      name,
      contender,
      package: packages.new,
      place: places.new,
    }))
    const { old } = packages
    const { old: oldPlace } = places
    if (old === undefined || oldPlace === undefined) return [{ setting, comparison, atOnce, members: all }]
    return all
      .filter(({ name }) => isOurs(name))
      .map((ours) => ({
        setting: `${setting}, ${ours.name}`,
        comparison,
        atOnce,
        members: [
          { ...ours, name: 'old', package: old, place: oldPlace },
          { ...ours, name: 'new' },
        ],
      }))
  })
}

function narrowed(group: Group, only: string): Group[] {
  const { setting, members } = group
  if (setting.includes(only)) return [group]
  const left = members.filter(({ name }, index) => index === 0 || `${setting}, ${name}`.includes(only))
  return left.length > 1 ? [{ ...group, members: left }] : []
}

async function measureGroup(
  backendName: string,
  backend: Backend,
  { setting, comparison, atOnce: concurrencies, members }: Group,
  folder: string,
  { seconds, rounds, profiles }: CostOptions,
  packages: CostPackages,
  progress: (what: string) => void,
): Promise<ComparisonCost[]> {
  const entrants: Entrant[] = []
  try {
    progress('warming up')
    for (const [index, member] of members.entries()) {
      const side = await Side.start(member.package, {
        backend: backendName,
        place: member.place,
        folder: join(folder, String(index)),
        comparison,
        contender: member.contender,
      })
      entrants.push({ name: member.name, side, commands: await commandsOf(backend, side, seconds) })
    }
    const results: ComparisonCost[] = []
    for (const atOnce of concurrencies) {
      for (const { side } of entrants) await side.warmUp(atOnce, Math.min(settleSeconds, seconds))
      const samples = new Map<Entrant, PairCost[]>(entrants.map((entrant) => [entrant, []]))
      for (let round = 0; round < rounds; round++) {
        progress(`${atOnce} at once, round ${round + 1} of ${rounds}`)
        // Every other round backwards: nobody always comes first, or always after the same neighbour.
        const order = round % 2 === 0 ? entrants : entrants.toReversed()
        for (const entrant of order)
          samples.get(entrant)?.push(await measurePair(entrant, backend.pids, atOnce, seconds))
      }
      if (profiles !== undefined) {
        progress(`${atOnce} at once, profiles`)
        mkdirSync(profiles, { recursive: true })
        for (const { side, name } of entrants) {
          const file = `${backendName}, ${setting}, ${name}, ${atOnce}`.replaceAll(/[^\w.-]+/g, '-')
          await side.profile(atOnce, seconds, join(profiles, `${file}.cpuprofile`))
        }
      }
      const [first = []] = samples.values()
      const isAgainst = packages.old !== undefined
      const contenders = Array.from(samples, ([{ name }, own]) => summarise(name, own, first, isAgainst))
      results.push({ setting, atOnce, contenders })
    }
    for (const { side } of entrants) await side.close()
    return results
  } finally {
    for (const { side } of entrants) side.end()
  }
}

async function commandsOf(
  backend: Backend,
  side: Side,
  seconds: number,
): Promise<() => Promise<Commands | null>> {
  await side.warmUp(64, Math.min(warmUpSeconds, seconds))
  return (
    (await backend.commandsOf?.(async () => {
      for (let pair = 0; pair < pairsOfProbe; pair++) await side.pair()
    })) ?? (async () => null)
  )
}

async function measurePair(
  { side, commands }: Entrant,
  servers: readonly number[],
  atOnce: number,
  seconds: number,
): Promise<PairCost> {
  const before = await commands()
  const stopCpu = startCpuWatch(servers)
  const client = await side.measure(atOnce, seconds)
  const serversMs = stopCpu()
  const after = await commands()
  const spent = before && after && { count: after.count - before.count, us: after.us - before.us }
  return costOfPair(client, serversMs, spent)
}

export function costOfPair(
  { pairs, userUs, systemUs, sentBytes, receivedBytes, allocatedBytes }: ClientCost,
  serversMs: number | null,
  commands: Commands | null,
): PairCost {
  return {
    client: (userUs + systemUs) / pairs,
    user: userUs / pairs,
    system: systemUs / pairs,
    servers: serversMs === null ? null : (serversMs * 1_000) / pairs,
    'in commands': commands && commands.us / pairs,
    commands: commands && commands.count / pairs,
    // An engine in this process has no wire.
    sent: sentBytes === 0 ? null : sentBytes / pairs,
    received: receivedBytes === 0 ? null : receivedBytes / pairs,
    allocated: allocatedBytes / pairs,
  }
}

/** `first`: the rounds of the one that the others are compared with. */
export function summarise(
  name: string,
  rounds: readonly PairCost[],
  first: readonly PairCost[],
  isAgainst: boolean,
): ContenderCost {
  const costs: Partial<Record<Measure, MeasureResult>> = {}
  for (const measure of measures) {
    const values = rounds.map((round) => round[measure]).filter((value) => value !== null)
    if (values.length < rounds.length) continue
    const ratios = values.map((value, round) => value / (first[round]?.[measure] ?? Number.NaN))
    const hasRatio = ratios.every(Number.isFinite)
    costs[measure] = {
      value: median(values),
      ratio: hasRatio ? median(ratios) : null,
      ...(isAgainst && hasRatio && judged(measure, ratios)),
    }
  }
  return { name, costs, rounds }
}

/** A cost passes where a rate would: what is compared is how many pairs the same cost buys. */
function judged(measure: Measure, ratios: readonly number[]): Partial<MeasureResult> {
  const [low, high] = intervalOfMedian(ratios)
  // These two are parts of `client`, and the system tells them apart by sampling.
  if (measure === 'user' || measure === 'system') return { low, high }
  return { low, high, verdict: judge(ratios.map((ratio) => 1 / ratio)).verdict }
}

export function verdictOf(results: readonly CostResult[]): Verdict {
  const all = results
    .flatMap(({ comparisons }) => comparisons)
    .flatMap(({ contenders }) => contenders.slice(1))
    .flatMap(({ costs }) => Object.values(costs).map(({ verdict }) => verdict))
  return overall(all.filter((verdict) => verdict !== undefined))
}
