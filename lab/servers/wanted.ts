import { isNeeded, neededFor } from '../obtain/engines.ts'

/** Whether this run is about these engines or backends: `npm test -- --only redis,memory` narrows it. */
export function wanted(...names: readonly string[]): boolean {
  const only = process.env.HOLDFAST_TEST_ONLY
  if (only === undefined || only === '') return true
  const named = only.split(',')
  const needed = neededFor(only)
  return names.every((name) => named.includes(name) || (isNeeded(name) && needed.includes(name)))
}
