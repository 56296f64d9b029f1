/**
 * The recipes as workloads: what one simulated process does from its start until the world is stopping. A workload judges
 * itself with `world.fail`; what its locks do is judged by the checks of `checks.ts`, as for every workload.
 */
import type { Client } from '../client.ts'
import type { Workload } from '../settings.ts'
import { electionWorkload } from './election.ts'
import { shareOut } from './partitions.ts'
import { keepSchedule } from './schedules.ts'

/** Settles when `world.isStopping` and everything that it started has ended. A process that was killed never settles. */
export type RecipeWorkload = (client: Client) => Promise<void>

export const recipes: Partial<Record<Workload, RecipeWorkload>> = {
  election: electionWorkload,
  partitions: shareOut,
  schedules: keepSchedule,
}
