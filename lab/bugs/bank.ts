/** The bank of historical bugs: each planted in a copy of the sources, each to be caught. */
import { ambiguityBugs } from './ambiguous.ts'
import type { PlantedBug } from './bug.ts'
import { engineBugs } from './engines.ts'
import { historyBugs } from './histories.ts'
import { timeBugs } from './time.ts'
import { waitingBugs } from './waiting.ts'

export const bugs: readonly PlantedBug[] = [
  ...timeBugs,
  ...ambiguityBugs,
  ...waitingBugs,
  ...engineBugs,
  ...historyBugs,
]
