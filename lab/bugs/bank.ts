/** The bank of planted bugs. */
import type { SourceBug } from './bug.ts'
import { ambiguityBugs } from './sources/ambiguous.ts'
import { engineBugs } from './sources/engines.ts'
import { guaranteeBugs } from './sources/guarantees.ts'
import { historyBugs } from './sources/histories.ts'
import { timeBugs } from './sources/time.ts'
import { waitingBugs } from './sources/waiting.ts'

export const sourceBugs: readonly SourceBug[] = [
  ...timeBugs,
  ...ambiguityBugs,
  ...waitingBugs,
  ...engineBugs,
  ...historyBugs,
  ...guaranteeBugs,
]
