/** Three members of ZooKeeper that can be cut off from each other, and from the clients. */
import assert from 'node:assert/strict'
import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { ClusterDoors } from '../../../../test/cluster-doors.ts'
import { Rig } from '../../../../test/zookeeper/rig.ts'
import { systemRandom } from '../../../base/ids.ts'
import { type ClusterWorld, describeCluster } from '../../../testing/describe-cluster.ts'

describe.runIf(wanted('zookeeper'))('members and network', () => {
  let rig: Rig
  let doors: ClusterDoors
  beforeAll(async () => {
    rig = await Rig.start({ members: 3, partitions: true, settings: { maxSessionTimeout: '60000' } })
    doors = await ClusterDoors.open(rig.cluster)
  })
  afterAll(async () => {
    await doors[Symbol.asyncDispose]()
    await rig[Symbol.asyncDispose]()
  })

  async function heal(): Promise<void> {
    await doors.heal()
    await rig.settled()
  }

  const world: ClusterWorld = {
    get members() {
      return doors.members
    },
    // Longer than two elections of which the first has failed.
    ttlMs: 16_000,
    leader: () => doors.leader(),
    client: (members, way) => {
      const hosts = doors.addresses(members, way).map(({ host, port }) => `${host}:${port}`)
      // It begins at the first, and not at any.
      return rig.backend({ hosts, random: { ...systemRandom, fraction: () => 0 } })
    },
    heal,
    remains: () => rig.remains(),
    async close() {
      await heal()
      await rig.clear()
      assert.deepEqual(await rig.remains(), [])
    },
  }
  describeCluster({
    name: 'zookeeper',
    describe,
    test,
    createWorld: async () => world,
    lacks: ['asking-again'],
  })
})
