import { createLocker } from 'holdfast'
import { consul } from 'holdfast/consul'
import type { Taker } from '../subject.ts'
import { ttlMs } from './raw.ts'

export function holdfastConsul(hosts: readonly string[], namespace: string): Taker {
  return {
    name: 'holdfast',
    async openTaking() {
      const locker = createLocker(await consul({ hosts, namespace }), { ttlMs })
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
