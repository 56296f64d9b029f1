import { etcd3Lock, rawEtcd3 } from '../etcd/etcd3.ts'
import { holdfastEtcd } from '../etcd/holdfast.ts'
import { rawEtcd, rawGateway, watchFloor } from '../etcd/raw.ts'
import { contender, type Place, type Subject } from '../subject.ts'

export { startServers } from '../etcd/server.ts'

export function subject({ urls, namespace }: Place): Subject {
  return {
    raw: 'a transaction that creates a key on a shared lease if it is not there, and a delete, over the same connection as ours',
    remarks: ['Every TTL is 15 s; renewal as by default', 'All clients are connected to the first member'],
    comparisons: [
      {
        setting: 'three members',
        contenders: [
          contender(rawEtcd(urls)),
          contender(holdfastEtcd(urls, namespace)),
          contender(etcd3Lock(urls)),
          contender(rawEtcd3(urls)),
          contender(rawGateway(urls)),
        ],
      },
    ],
    contest: {
      waiters: 32,
      holdMs: 1,
      floor:
        'The floor is a delete, the event of a watch, and one transaction of the next in a line that the client keeps',
      takers: [watchFloor(urls), holdfastEtcd(urls, namespace)],
    },
  }
}
