/**
 * A backend on a cluster whose members are stopped, killed, cut off and restarted, and whose answers are lost. `describeBackend` remains
 * the definition of "works"; this suite shows that it also works while something is broken. It runs in any test runner that has
 * `describe` and `test`, on real servers and in real time.
 *
 * ```ts
 * describeCluster({ name: 'my engine', describe, test, createWorld: () => openMyCluster() })
 * ```
 */
import type { ClusterAbility, ClusterCase, ClusterWorld } from './cluster-cases/case.ts'
import { frozenCases, memberCases } from './cluster-cases/members.ts'
import { networkCases } from './cluster-cases/network.ts'

export type {
  ClusterAbility,
  ClusterCase,
  ClusterDoor,
  ClusterMember,
  ClusterWorld,
} from './cluster-cases/case.ts'

export interface ClusterSuite {
  /** Stands before the topics in the runner's report. */
  readonly name: string
  readonly describe: (name: string, body: () => void) => unknown
  readonly test: (name: string, body: () => Promise<void>) => unknown
  /** For every case. Worlds may share the servers, one after the other. A server that cannot be reached is a failure. */
  readonly createWorld: () => Promise<ClusterWorld>
  /** Cases that need one of these are not played, and the report says so. */
  readonly lacks?: readonly ClusterAbility[]
  /** By default all of `clusterCases()`. */
  readonly cases?: readonly ClusterCase[]
}

export function clusterCases(): readonly ClusterCase[] {
  return [...networkCases, ...memberCases, ...frozenCases]
}

export function describeCluster(suite: ClusterSuite): void {
  const { name, describe, test, createWorld, lacks = [], cases = clusterCases() } = suite
  const played = cases.filter(({ needs }) => !needs.some((ability) => lacks.includes(ability)))
  const left = lacks.length === 0 ? '' : `, without ${lacks.join(', ')}`
  describe(`${name} clusters${left}`, () => {
    for (const [topic, members] of Map.groupBy(played, (each) => each.topic))
      describe(topic, () => {
        for (const each of members)
          test(`${each.rule} ${each.title}`, async () => {
            const world = await createWorld()
            try {
              await each.run(world)
            } finally {
              await world.close()
            }
          })
      })
  })
}
