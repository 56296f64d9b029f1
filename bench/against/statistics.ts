/**
 * The verdict of a run of `--against`. The interval of the median is the exact one from order statistics: with n rounds, the
 * number of them below the true median is binomial, whatever their distribution is, so the k-th smallest and the k-th
 * largest ratio enclose it with a known chance. It needs no random numbers, and an outlier does not widen it.
 */
import { median } from '../measure.ts'

export const leastRatio = 0.95
/** Further than this from the median, on either side, the interval says nothing about a loss of 5 %. */
export const widest = 0.1
/** Fewer would make the interval the range of all rounds, or nearly so. */
export const fewestRounds = 15
const doubt = 0.05

export type Verdict = 'pass' | 'fail' | 'void'

export interface Finding {
  /** The median of the rounds' ratios new/old. */
  readonly ratio: number
  readonly low: number
  readonly high: number
  readonly verdict: Verdict
}

export function judge(ratios: readonly number[]): Finding {
  const ratio = median(ratios)
  const [low, high] = intervalOfMedian(ratios)
  // A round in which the old one did nothing has no ratio.
  const isNarrow =
    ratios.every(Number.isFinite) && low >= ratio * (1 - widest) && high <= ratio * (1 + widest)
  return { ratio, low, high, verdict: !isNarrow ? 'void' : ratio >= leastRatio ? 'pass' : 'fail' }
}

/** One that is slower decides, however noisy the others are. */
export function overall(verdicts: readonly Verdict[]): Verdict {
  if (verdicts.includes('fail')) return 'fail'
  return verdicts.includes('void') || verdicts.length === 0 ? 'void' : 'pass'
}

/** It contains the true median with a chance of at least 95 %. */
export function intervalOfMedian(values: readonly number[]): [low: number, high: number] {
  const sorted = values.toSorted((a, b) => a - b)
  const count = sorted.length
  let leftOut = 0
  let chance = 0.5 ** count
  let tail = chance
  while (tail <= doubt / 2) {
    leftOut++
    chance *= (count - leftOut + 1) / leftOut
    tail += chance
  }
  const low = sorted[leftOut - 1]
  const high = sorted[count - leftOut]
  if (low === undefined || high === undefined) throw new RangeError(`${count} values have no 95 % interval`)
  return [low, high]
}
