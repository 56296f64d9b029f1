/** Three members of etcd. The protected data is in a file, because etcd has no guard. */
import { openEtcd } from '../../../packages/holdfast/src/engines/etcd/locks/assemble.ts'
import { type Server, startEtcd } from '../../servers/index.ts'
import { overtaken } from '../overtaking.ts'
import { Doors, type Target } from './doors.ts'
import type { Addresses, Engine } from './engine.ts'
import { filling, freezingOne, fullArguments } from './etcd-faults.ts'
import { failingOver, freezing } from './servers.ts'

const urlOf = ({ host, port }: Target) => `http://${host}:${port}`

export const etcdEngine: Engine = {
  name: 'etcd',
  resource: 'sqlite',
  protection: 'guard',
  faults: ['partition', 'freeze', 'failOver', 'frozenMember', 'full'],
  assumes: {},
  published:
    'Jepsen (etcd 3.4.3, 2020): 18 % of acknowledged updates were lost under etcd’s own locks, without a guard.',
  async start({ clients, fault }) {
    await using stack = new AsyncDisposableStack()
    const cluster = stack.use(
      await startEtcd({ members: 3, ...(fault === 'full' && { arguments: fullArguments }) }),
    )
    const doors = fault === 'partition' ? stack.use(await Doors.open(clients, cluster.members, urlOf)) : null
    const leader = await cluster.leader()
    const follower = cluster.members.find((member) => member !== leader) as Server
    const urls = [follower, ...cluster.members.filter((member) => member !== follower)].map(({ url }) => url)
    const frozenMember = fault === 'frozenMember' ? stack.use(await freezingOne(follower, urls)) : null
    const owned = stack.move()
    // A grant that was made survives the loss of the leader. Only a client that knows no other member is lost with it.
    const addressesFor = (client: string) =>
      fault === 'failOver' && client === overtaken ? [leader.url] : urls
    return {
      addresses: urls,
      addressesFor: (client) => doors?.addressesFor(client) ?? addressesFor(client),
      faults: {
        ...(doors && { partition: doors.partition }),
        ...(frozenMember && { frozenMember }),
        failOver: failingOver(cluster),
        full: filling(cluster),
        freeze: freezing(cluster.members, 'all members'),
      },
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    }
  },
  async open(hosts: Addresses) {
    return { backend: await openEtcd({ hosts }), close: async () => {} }
  },
}
