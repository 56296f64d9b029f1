import { holdfastConsul } from '../consul/holdfast.ts'
import { pollFloor, rawConsul } from '../consul/raw.ts'
import { contender, type Place, type Subject } from '../subject.ts'

export { startServers } from '../consul/server.ts'

export function subject({ urls, namespace }: Place): Subject {
  return {
    raw: 'a key that is acquired for a shared session, and deleted, over the same client as ours',
    remarks: ['Every TTL is 15 s; renewal as by default', 'All clients are connected to the first server'],
    comparisons: [
      {
        setting: 'three servers',
        contenders: [contender(rawConsul(urls)), contender(holdfastConsul(urls, namespace))],
      },
    ],
    contest: {
      waiters: 30,
      holdMs: 1,
      floor:
        'The floor is a delete, the answer of a blocking query, and one check-and-set of the next. Each waiter locks a key when it comes; who is next is known in the client',
      takers: [pollFloor(urls), holdfastConsul(urls, namespace)],
    },
  }
}
