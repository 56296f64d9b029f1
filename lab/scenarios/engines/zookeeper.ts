/** Three members of ZooKeeper. The protected data is in a file, because ZooKeeper has no guard. */
import { openZooKeeper } from '../../../packages/holdfast/src/engines/zookeeper/locks/assemble.ts'
import { startZooKeeper } from '../../servers/index.ts'
import { overtaken } from '../overtaking.ts'
import { Doors, type Target } from './doors.ts'
import type { Addresses, Engine } from './engine.ts'
import { failingOver, freezing } from './servers.ts'

const hostOf = ({ host, port }: Target) => `${host}:${port}`

export const zooKeeperEngine: Engine = {
  name: 'zookeeper',
  resource: 'sqlite',
  protection: 'guard',
  faults: ['partition', 'freeze', 'failOver'],
  assumes: {},
  async start({ clients, fault }) {
    await using stack = new AsyncDisposableStack()
    const cluster = stack.use(await startZooKeeper({ members: 3 }))
    const doors = fault === 'partition' ? stack.use(await Doors.open(clients, cluster.members, hostOf)) : null
    const leader = await cluster.leader()
    const hosts = cluster.members.map(hostOf)
    const owned = stack.move()
    // A grant that was made survives the loss of the leader. Only a client that knows no other member is lost with it.
    const addressesFor = (client: string) =>
      fault === 'failOver' && client === overtaken ? [hostOf(leader)] : hosts
    return {
      addresses: hosts,
      addressesFor: (client) => doors?.addressesFor(client) ?? addressesFor(client),
      faults: {
        ...(doors && { partition: doors.partition }),
        failOver: failingOver(cluster),
        freeze: freezing(cluster.members, 'all members'),
      },
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    }
  },
  async open(hosts: Addresses) {
    return { backend: await openZooKeeper({ hosts, acl: 'open' }), close: async () => {} }
  },
}
