/** Bugs that are planted around a backend: a wrapper with one fault. */
import type { BackendBug } from '../bug.ts'
import { endingBugs } from './ending.ts'
import { modelBugs } from './models.ts'
import { outsideBugs } from './outside.ts'
import { ownershipBugs } from './ownership.ts'
import { showingBugs } from './showing.ts'
import { timeBugs } from './time.ts'
import { waitingBugs } from './waiting.ts'

export const backendBugs: readonly BackendBug[] = [
  ...timeBugs,
  ...ownershipBugs,
  ...waitingBugs,
  ...showingBugs,
  ...endingBugs,
  ...outsideBugs,
  ...modelBugs,
]
