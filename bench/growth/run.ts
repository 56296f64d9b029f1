/** Measures what calls cost while something else grows, for one engine. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startBackend } from '../backend.ts'
import { median, Rests } from '../measure.ts'
import { startCpuWatch } from './cpu.ts'
import { engines } from './engines.ts'
import { type CallMeasure, type Growing, type Load, loads, type Measure, type RestMeasure } from './loads.ts'

export interface Cost {
  /** Of a call: its median time. At rest: CPU time of client and servers a second. */
  readonly ms: number
  /** Of the servers, for a call; null if it cannot be known. */
  readonly serverCpuMs: number | null
}

export interface MeasureResult {
  readonly name: string
  readonly unit: 'ms' | 'CPU ms/s'
  readonly hasGrowingAnswer: boolean
  /** One for each size. */
  readonly costs: readonly Cost[]
  /** The cost at the largest size, compared with the smallest. */
  readonly growth: number
}

export interface LoadResult {
  readonly name: string
  /** Those that were reached. */
  readonly sizes: readonly number[]
  readonly measures: readonly MeasureResult[]
  /** Why it ended early. */
  readonly problem?: string
}

export interface GrowthResult {
  readonly name: string
  readonly remarks: readonly string[]
  readonly seconds: number
  readonly loads: readonly LoadResult[]
}

export interface GrowthEffort {
  readonly sizes: readonly number[]
  /** How long each measure is repeated. */
  readonly seconds: number
}

const fewestCalls = 3
/** For each size, to bring the load to it and to measure. */
const patienceMs = 90_000
const closeMs = 5_000

export async function runGrowth(
  name: string,
  folder: string,
  effort: GrowthEffort,
  progress: (what: string) => void,
): Promise<GrowthResult> {
  const results: LoadResult[] = []
  let remarks: readonly string[] = []
  for (const [index, load] of loads.entries()) {
    // New servers for each load: what the last one left behind would be a part of the next.
    const backend = await startBackend(name)
    try {
      remarks = backend.remarks
      const open = engines[name]
      if (open === undefined) throw new Error(`There is no growth of ${name}.`)
      const own = join(folder, `${name}-growth-${index}`)
      mkdirSync(own, { recursive: true })
      const place = await backend.place('growth')
      const crowd = await open(place, own)
      const probe = await open(place, own)
      const scene = { crowd: crowd.locker, probe: probe.locker }
      results.push(
        await measureLoad(
          load,
          () => load.start(scene),
          effort,
          backend.pids,
          (what) => progress(`${name}, ${load.name}: ${what}`),
        ),
      )
      // Thousands of leases and waiters: the end of their servers, or of this process, is quicker.
      await Promise.race([Promise.allSettled([crowd.close(), probe.close()]), sleep(closeMs)])
    } finally {
      await backend.stop()
    }
  }
  return { name, remarks, seconds: effort.seconds, loads: results }
}

async function measureLoad(
  load: Load,
  start: () => Promise<Growing>,
  { sizes, seconds }: GrowthEffort,
  servers: readonly number[],
  progress: (what: string) => void,
): Promise<LoadResult> {
  const reached: number[] = []
  const costs = new Map<Measure, Cost[]>()
  let problem: string | undefined
  try {
    const growing = await within(patienceMs, start())
    const { divisor = 1 } = load
    for (const size of new Set(sizes.map((each) => Math.max(1, Math.round(each / divisor))))) {
      progress(`${size}`)
      const found = await within(
        patienceMs,
        (async () => {
          await growing.growTo(size)
          const found: [Measure, Cost][] = []
          for (const measure of growing.measures) {
            const cost =
              'call' in measure
                ? await costOfCalls(measure, seconds, servers)
                : await costOfRest(measure, seconds, servers)
            found.push([measure, cost])
          }
          return found
        })(),
      )
      reached.push(size)
      for (const [measure, cost] of found) costs.set(measure, [...(costs.get(measure) ?? []), cost])
    }
  } catch (error) {
    problem = (error as Error).message
  }
  const measures = Array.from(costs, ([measure, own]) => summarise(measure, own))
  return { name: load.name, sizes: reached, measures, ...(problem !== undefined && { problem }) }
}

async function costOfCalls(measure: CallMeasure, seconds: number, servers: readonly number[]): Promise<Cost> {
  const rests = new Rests()
  const timesMs: number[] = []
  if (measure.isOnce !== true) await measure.call()
  const serverCpu = startCpuWatch(servers)
  const endMs = performance.now() + seconds * 1_000
  do {
    const beganMs = performance.now()
    await measure.call()
    const nowMs = performance.now()
    timesMs.push(nowMs - beganMs)
    rests.begin(nowMs)
    await rests.due()
  } while (measure.isOnce !== true && (timesMs.length < fewestCalls || performance.now() < endMs))
  const cpuMs = serverCpu()
  return { ms: median(timesMs), serverCpuMs: cpuMs === null ? null : cpuMs / timesMs.length }
}

async function costOfRest(measure: RestMeasure, seconds: number, servers: readonly number[]): Promise<Cost> {
  const end = await measure.begin()
  const own = process.cpuUsage()
  const serverCpu = startCpuWatch(servers)
  const beganMs = performance.now()
  // Engines that are polled a few times a second need more time than calls do.
  await sleep(seconds * 4_000)
  const tookSeconds = (performance.now() - beganMs) / 1_000
  const { user, system } = process.cpuUsage(own)
  const cpuMs = (serverCpu() ?? 0) + (user + system) / 1_000
  await end()
  return { ms: cpuMs / tookSeconds, serverCpuMs: null }
}

function summarise(measure: Measure, costs: readonly Cost[]): MeasureResult {
  return {
    name: measure.name,
    unit: 'call' in measure ? 'ms' : 'CPU ms/s',
    hasGrowingAnswer: measure.hasGrowingAnswer === true,
    costs,
    growth: growthOf(costs.map(({ ms }) => ms)),
  }
}

/** Not a number when there is only one size. */
export function growthOf(costs: readonly number[]): number {
  const [smallest = Number.NaN, ...others] = costs
  return (others.at(-1) ?? Number.NaN) / smallest
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const controller = new AbortController()
  const late = sleep(ms, undefined, { signal: controller.signal }).then(() => {
    throw new Error(`not done within ${ms / 1_000} s`)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    controller.abort()
    late.catch(() => {})
  }
}
