/** Bugs that are planted in the sources, as text that is replaced. */
import type { SourceBug } from '../bug.ts'
import { ambiguityBugs } from './ambiguous.ts'
import { consulBugs } from './consul.ts'
import { electionBugs } from './election.ts'
import { engineBugs } from './engines.ts'
import { etcdBugs } from './etcd.ts'
import { guaranteeBugs } from './guarantees.ts'
import { guardBugs } from './guards.ts'
import { historyBugs } from './histories.ts'
import { partitionsBugs } from './partitions.ts'
import { recipeBugs } from './recipes.ts'
import { scheduleBugs } from './schedules.ts'
import { serviceBugs } from './services.ts'
import { timeBugs } from './time.ts'
import { waitingBugs } from './waiting.ts'
import { zooKeeperBugs } from './zookeeper.ts'

export const sourceBugs: readonly SourceBug[] = [
  ...timeBugs,
  ...ambiguityBugs,
  ...waitingBugs,
  ...engineBugs,
  ...historyBugs,
  ...guaranteeBugs,
  ...etcdBugs,
  ...guardBugs,
  ...serviceBugs,
  ...zooKeeperBugs,
  ...consulBugs,
  ...electionBugs,
  ...partitionsBugs,
  ...scheduleBugs,
  ...recipeBugs,
]
