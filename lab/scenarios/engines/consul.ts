/** Three servers of Consul. The protected data is in a file, because Consul has no guard. */
import { openConsul } from '../../../packages/holdfast/src/engines/consul/locks/assemble.ts'
import { startConsul } from '../../servers/index.ts'
import { overtaken } from '../overtaking.ts'
import { Doors, type Target } from './doors.ts'
import type { Addresses, Engine } from './engine.ts'
import { failingOver, freezing } from './servers.ts'

const urlOf = ({ host, port }: Target) => `http://${host}:${port}`

export const consulEngine: Engine = {
  name: 'consul',
  resource: 'sqlite',
  protection: 'guard',
  faults: ['partition', 'freeze', 'failOver'],
  assumes: {},
  async start({ clients, fault }) {
    await using stack = new AsyncDisposableStack()
    const cluster = stack.use(await startConsul({ members: 3 }))
    const doors = fault === 'partition' ? stack.use(await Doors.open(clients, cluster.members, urlOf)) : null
    const leader = await cluster.leader()
    const urls = cluster.members.map(({ url }) => url)
    const owned = stack.move()
    // A grant that was made survives the loss of the leader. Only a client that knows no other server is lost with it.
    const addressesFor = (client: string) =>
      fault === 'failOver' && client === overtaken ? [leader.url] : urls
    return {
      addresses: urls,
      addressesFor: (client) => doors?.addressesFor(client) ?? addressesFor(client),
      faults: {
        ...(doors && { partition: doors.partition }),
        failOver: failingOver(cluster),
        freeze: freezing(cluster.members, 'all servers'),
      },
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    }
  },
  async open(hosts: Addresses) {
    return { backend: await openConsul({ hosts }), close: async () => {} }
  },
}
