/** Three servers of Consul that are stopped, killed and cut off from the clients. */
import { waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { ClusterDoors } from '../../../../test/cluster-doors.ts'
import { Rig } from '../../../../test/consul/rig.ts'
import { type ClusterWorld, describeCluster } from '../../../testing/describe-cluster.ts'

describe.runIf(wanted('consul'))('members and network', { timeout: 120_000 }, () => {
  let rig: Rig
  let doors: ClusterDoors
  beforeAll(async () => {
    rig = await Rig.start({ members: 3 })
    doors = await ClusterDoors.open(rig.cluster)
  }, 120_000)
  afterAll(async () => {
    await doors?.[Symbol.asyncDispose]()
    await rig?.[Symbol.asyncDispose]()
  })

  async function heal(): Promise<void> {
    await doors.heal()
    // A server answers when it follows a leader.
    for (const { url } of rig.cluster.members)
      await waitFor('a leader', async () => (await rig.operator.keys('holdfast/', url)) !== null)
  }

  const world: ClusterWorld = {
    get members() {
      return doors.members
    },
    ttlMs: 8_000,
    leader: () => doors.leader(),
    client: (members, way) => {
      const hosts = doors.addresses(members, way).map(({ host, port }) => `http://${host}:${port}`)
      return rig.backend({ hosts })
    },
    heal,
    remains: async () =>
      (await rig.operator.keys()).map(({ Key }) => Key).filter((key) => !key.endsWith('/id')),
    async close() {
      await heal()
      await rig.clear()
    },
  }
  describeCluster({
    name: 'Consul',
    describe,
    test,
    createWorld: async () => world,
    lacks: ['partitions', 'watch'],
  })
})
