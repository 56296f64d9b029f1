/** Opens lockers on the engines whose growth is measured. */
import { join } from 'node:path'
import { createLocker, type Locker } from 'holdfast'
import { consul } from 'holdfast/consul'
import { etcd } from 'holdfast/etcd'
import { memory, sharedMemoryEngine } from 'holdfast/memory'
import { postgres } from 'holdfast/postgres'
import { postgresAdvisory } from 'holdfast/postgres/advisory'
import { redis } from 'holdfast/redis'
import { redlock } from 'holdfast/redlock'
import { sqlite } from 'holdfast/sqlite'
import { zookeeper } from 'holdfast/zookeeper'
import { openPg } from '../postgres/clients.ts'
import { ioredis6 } from '../redis/clients.ts'
import { firstUrl, type Place } from '../subject.ts'

export interface OpenLocker {
  readonly locker: Locker
  close(): Promise<void>
}

/** `folder`: for engines that keep files; two lockers with the same folder and place meet. */
type Open = (place: Place, folder: string) => Promise<OpenLocker>

export const engines: Readonly<Record<string, Open>> = {
  async memory({ namespace }, folder) {
    return opened(createLocker(memory({ engine: sharedMemoryEngine(folder), namespace })))
  },
  async sqlite({ namespace }, folder) {
    return opened(createLocker(sqlite({ path: join(folder, 'locks.db'), namespace })))
  },
  async redis(place) {
    const { client, close } = await ioredis6.open(firstUrl(place))
    return opened(createLocker(redis({ client, namespace: place.namespace })), close)
  },
  async redlock({ urls, namespace }) {
    const nodes = await Promise.all(urls.map((url) => ioredis6.open(url)))
    const clients = nodes.map(({ client }) => client)
    return opened(createLocker(redlock({ clients, namespace, persistence: 'every-write' })), () => {
      for (const { close } of nodes) close()
    })
  },
  async postgres(place) {
    const { client, close } = openPg(firstUrl(place))
    return opened(createLocker(await postgres({ client, namespace: place.namespace })), close)
  },
  async 'postgres-advisory'(place) {
    const { client, close } = openPg(firstUrl(place))
    return opened(createLocker(await postgresAdvisory({ client, namespace: place.namespace })), close)
  },
  async etcd({ urls, namespace }) {
    return opened(createLocker(await etcd({ hosts: urls, namespace })))
  },
  async zookeeper({ urls, namespace }) {
    return opened(createLocker(await zookeeper({ hosts: urls, acl: 'open', namespace })))
  },
  async consul({ urls, namespace }) {
    return opened(createLocker(await consul({ hosts: urls, namespace })))
  },
}

function opened(locker: Locker, disconnect: () => unknown = () => {}): OpenLocker {
  return {
    locker,
    async close() {
      await locker.close({ graceMs: 0 })
      await disconnect()
    },
  }
}
