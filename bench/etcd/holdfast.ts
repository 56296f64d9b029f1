import { createLocker } from 'holdfast'
import { etcd } from 'holdfast/etcd'
import type { Taker } from '../subject.ts'
import { ttlMs } from './raw.ts'

export function holdfastEtcd(hosts: readonly string[], namespace: string): Taker {
  return {
    name: 'holdfast',
    async openTaking() {
      const locker = createLocker(await etcd({ hosts, namespace }), { ttlMs })
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
