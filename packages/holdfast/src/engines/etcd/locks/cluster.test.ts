/** Three members of etcd that can be cut off from each other, and from the clients. */
import { wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { ClusterDoors } from '../../../../test/cluster-doors.ts'
import { Rig } from '../../../../test/etcd/rig.ts'
import { type ClusterWorld, describeCluster } from '../../../testing/describe-cluster.ts'

describe.runIf(wanted('etcd'))('members and network', () => {
  let rig: Rig
  let doors: ClusterDoors
  beforeAll(async () => {
    rig = await Rig.start({ members: 3, partitions: true })
    doors = await ClusterDoors.open(rig.cluster)
  })
  afterAll(async () => {
    await doors[Symbol.asyncDispose]()
    await rig[Symbol.asyncDispose]()
  })

  async function heal(): Promise<void> {
    await doors.heal()
    // A member answers when it follows a leader.
    for (const { url } of rig.cluster.members) await rig.keys(url)
  }

  const world: ClusterWorld = {
    get members() {
      return doors.members
    },
    ttlMs: 6_000,
    leader: () => doors.leader(),
    client: (members, way) => {
      const hosts = doors.addresses(members, way).map(({ host, port }) => `http://${host}:${port}`)
      return rig.backend({ hosts })
    },
    heal,
    remains: async () => (await rig.keys()).map(({ key }) => key),
    async close() {
      await heal()
      await rig.clear()
    },
  }
  describeCluster({ name: 'etcd', describe, test, createWorld: async () => world })
})
