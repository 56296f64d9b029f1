/** `lock()` of the npm package etcd3, as its documentation shows it. */
import { Etcd3 } from 'etcd3'
import type { Taker } from '../subject.ts'
import { ttlMs } from './raw.ts'

export function etcd3Lock(hosts: readonly string[]): Taker {
  return {
    name: 'etcd3 lock()',
    async openTaking() {
      const client = new Etcd3({ hosts: [...hosts] })
      return {
        async take(name) {
          const lock = client.lock(`etcd3/${name}`).ttl(ttlMs / 1_000)
          await lock.acquire()
          return () => lock.release()
        },
        async close() {
          client.close()
        },
      }
    },
  }
}
