import { createLocker } from 'holdfast'
import { zookeeper } from 'holdfast/zookeeper'
import type { Taker } from '../subject.ts'
import { ttlMs } from './raw.ts'

export function holdfastZooKeeper(hosts: readonly string[], namespace: string): Taker {
  return {
    name: 'holdfast',
    async openTaking() {
      const locker = createLocker(await zookeeper({ hosts, acl: 'open', namespace }), { ttlMs })
      return {
        async take(resource) {
          const lease = await locker.acquire(resource)
          return () => lease.release()
        },
        close: () => locker.close(),
      }
    },
  }
}
