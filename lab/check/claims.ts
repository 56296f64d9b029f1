/** One rule for all modes: a claim has a weight, its name a capacity, and the weights of the holders must fit. */
import type { Asked } from './history.ts'

export interface Claim {
  readonly weight: number
  readonly capacity: number
}

/** As the library has it: an exclusive claim weighs all of a lock, a shared one weighs 1. */
export const lockCapacity = 2 ** 30

export function claimOf({ mode = 'exclusive', weight, capacity }: Asked): Claim {
  const whole = capacity ?? (mode === 'permits' ? 1 : lockCapacity)
  return { capacity: whole, weight: weight ?? (mode === 'exclusive' ? whole : 1) }
}

export function conflict(one: Claim, other: Claim): boolean {
  return one.weight + other.weight > Math.min(one.capacity, other.capacity)
}

export function describeClaim({ weight, capacity }: Claim): string {
  if (weight === capacity) return 'exclusively'
  return capacity === lockCapacity ? 'shared' : `${weight} of ${capacity}`
}
