/** Runs pairs for a while and says how many there were and how long they took. */
import { setImmediate as turnOfEventLoop } from 'node:timers/promises'
import type { Running } from './subject.ts'

export interface Sample {
  readonly pairsPerSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
}

/** Reading the clock costs as much as some raw pairs do: the quick ones are timed one in so many. */
const timedOneInMany = 16
const quickMs = 0.02

export async function measure(running: Running, atOnce: number, seconds: number): Promise<Sample> {
  const typicalMs = await timeOne(running)
  const timedOneIn = typicalMs < quickMs ? timedOneInMany : 1
  const timesMs: number[] = []
  let pairs = 0
  const startMs = performance.now()
  const endMs = startMs + seconds * 1_000

  const rests = new Rests()
  const loop = async (worker: number) => {
    const name = `bench/${worker}`
    for (let turn = worker; ; turn++) {
      if (turn % timedOneIn === 0) {
        const beganMs = performance.now()
        // One pair at least, however late it is: a measurement without any says nothing.
        if (beganMs >= endMs && turn !== worker) return
        await running.pair(name)
        const endedMs = performance.now()
        timesMs.push(endedMs - beganMs)
        rests.begin(endedMs)
      } else {
        await running.pair(name)
      }
      pairs++
      const rest = rests.due()
      if (rest !== undefined) await rest
    }
  }
  await Promise.all(Array.from({ length: atOnce }, (_, worker) => loop(worker)))
  const tookSeconds = (performance.now() - startMs) / 1_000

  timesMs.sort((a, b) => a - b)
  return {
    pairsPerSecond: pairs / tookSeconds,
    p50Ms: quantile(timesMs, 0.5),
    p99Ms: quantile(timesMs, 0.99),
  }
}

/**
 * In-process engines answer without a turn of the event loop, and then no renewal and no timer would ever run. So all
 * loops of a measurement rest together now and then, for one turn; if each rested for itself, the others would go on
 * and the event loop would still not turn.
 */
export class Rests {
  static readonly #everyMs = 10
  #lastMs = performance.now()
  #rest: Promise<void> | undefined

  /** To be awaited between two pairs; undefined when there is no rest now. */
  due(): Promise<void> | undefined {
    return this.#rest
  }

  begin(nowMs: number): void {
    if (this.#rest !== undefined || nowMs - this.#lastMs < Rests.#everyMs) return
    this.#rest = turnOfEventLoop().then(() => {
      this.#rest = undefined
      this.#lastMs = performance.now()
    })
  }
}

/** The quickest of a few: what a pair costs when nothing disturbs it. */
async function timeOne(running: Running): Promise<number> {
  let bestMs = Number.POSITIVE_INFINITY
  for (let turn = 0; turn < 20; turn++) {
    const beganMs = performance.now()
    await running.pair('bench/warm-up')
    bestMs = Math.min(bestMs, performance.now() - beganMs)
  }
  return bestMs
}

/** Of numbers in ascending order. */
export function quantile(sorted: readonly number[], share: number): number {
  const index = Math.min(sorted.length - 1, Math.floor(sorted.length * share))
  return sorted[index] ?? Number.NaN
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2
}
