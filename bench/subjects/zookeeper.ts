import { contender, type Place, type Subject, type Taker } from '../subject.ts'
import { holdfastZooKeeper } from '../zookeeper/holdfast.ts'
import { rawZooKeeper, watchFloor } from '../zookeeper/raw.ts'

export { startServers } from '../zookeeper/server.ts'

export function subject({ urls, namespace }: Place): Subject {
  return {
    raw: 'an ephemeral sequential node, and its deletion, over the same client as ours',
    remarks: [
      'Every TTL is 15 s; renewal as by default',
      'Each client is connected to one member, any of the three',
    ],
    comparisons: [
      {
        setting: 'three members',
        contenders: [contender(rawZooKeeper(urls)), contender(holdfastZooKeeper(urls, namespace))],
      },
      {
        setting: 'a new name for each pair',
        contenders: [
          contender(fresh(rawZooKeeper(urls))),
          contender(fresh(holdfastZooKeeper(urls, namespace))),
        ],
      },
    ],
    contest: {
      waiters: 32,
      holdMs: 1,
      floor:
        'The floor is a delete, the event of a watch, a list of the nodes, and a write of the next one, with a node created for each who waits',
      takers: [watchFloor(urls), holdfastZooKeeper(urls, namespace)],
    },
  }
}

function fresh(taker: Taker): Taker {
  let names = 0
  return {
    name: taker.name,
    async openTaking() {
      const taking = await taker.openTaking()
      return { ...taking, take: (name, waiter) => taking.take(`${name}-${++names}`, waiter) }
    },
  }
}
