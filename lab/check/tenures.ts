/** Finds the moments at which the weights of the holders exceed the capacity. */
import { type Claim, conflict } from './claims.ts'
import type { History } from './history.ts'

/** A claim that lasts from `from` up to but not including `until`, on any scale that orders moments. */
export interface Tenure<T> {
  readonly from: number
  readonly until: number
  readonly claim: Claim
  readonly of: T
}

export interface Overfull<T> {
  readonly last: T
  readonly others: readonly T[]
}

/** For each claim that does not fit when it begins: itself, and those that it meets. */
export function overfull<T>(tenures: readonly Tenure<T>[]): Overfull<T>[] {
  const found: Overfull<T>[] = []
  let present: Tenure<T>[] = []
  for (const tenure of tenures.toSorted((one, other) => one.from - other.from)) {
    if (tenure.until <= tenure.from) continue
    present = present.filter(({ until }) => until > tenure.from)
    const weight = present.reduce((sum, { claim }) => sum + claim.weight, 0)
    const capacity = Math.min(tenure.claim.capacity, ...present.map(({ claim }) => claim.capacity))
    if (present.length > 0 && conflict({ weight, capacity }, tenure.claim))
      found.push({ last: tenure.of, others: present.map(({ of }) => of) })
    present.push(tenure)
  }
  return found
}

/** A place in the order of events just before everything that happened at `time` or later. */
export function placeOf(history: History, time: number): number {
  const { events } = history
  let low = 0
  let high = events.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((events[middle]?.at ?? Infinity) >= time) high = middle
    else low = middle + 1
  }
  return (events[low]?.seq ?? Infinity) - 0.5
}
