/** All bugs of the bank, two at a time. */
import { bugs } from './bank.ts'
import type { PlantedBug } from './bug.ts'
import { type Caught, catchBug } from './plant.ts'

const AT_ONCE = 2

export async function catchAll(
  onCaught: (bug: PlantedBug, caught: Caught) => void = () => {},
): Promise<ReadonlyMap<string, Caught>> {
  const results = new Map<string, Caught>()
  const left = [...bugs]
  const work = async () => {
    for (let bug = left.shift(); bug !== undefined; bug = left.shift()) {
      // An edit that no longer fits is that bug's failure, and not the others'.
      const caught = await catchBug(bug).catch((error) => ({
        id: bug.id,
        seeds: null,
        rule: '–',
        message: String(error),
      }))
      results.set(bug.id, caught)
      onCaught(bug, caught)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return results
}
