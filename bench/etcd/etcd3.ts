/** The npm package etcd3: its `lock()` as its documentation shows it, and its client alone. */
import { Etcd3 } from 'etcd3'
import type { Taker } from '../subject.ts'
import { ttlMs } from './raw.ts'

/** The same two operations as `raw`, over the npm package's client. */
export function rawEtcd3(hosts: readonly string[]): Taker {
  return {
    name: 'raw over etcd3',
    async openTaking() {
      const client = new Etcd3({ hosts: [...hosts] })
      const lease = client.lease(ttlMs / 1_000)
      const id = await lease.grant()
      return {
        async take(name) {
          const key = `raw3/${name}`
          const create = client.put(key).value('held').lease(id)
          const { succeeded } = await client.if(key, 'Create', '==', 0).then(create).commit()
          return succeeded ? async () => void (await client.delete().key(key)) : null
        },
        async close() {
          await lease.revoke()
          client.close()
        },
      }
    },
  }
}

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
