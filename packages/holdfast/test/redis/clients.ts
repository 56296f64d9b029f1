/** The client libraries that the tests go through, each in both of its supported major versions. */
import { Redis as IoRedis6, Cluster as IoRedisCluster6 } from 'ioredis'
import { Redis as IoRedis5, Cluster as IoRedisCluster5 } from 'ioredis5'
import { createClient as createClient6, createCluster as createCluster6 } from 'redis'
import { createClient as createClient5, createCluster as createCluster5 } from 'redis5'
import type { RedisClient } from '../../src/engines/redis/client/index.ts'

export interface OpenedClient {
  readonly client: RedisClient
  close(): void
}

export interface ClientOptions {
  readonly database?: number
  readonly keyPrefix?: string
}

export interface ClientLibrary {
  readonly name: string
  readonly prefixes: boolean
  open(url: string, options?: ClientOptions): Promise<OpenedClient>
  openCluster(urls: readonly string[]): Promise<OpenedClient>
}

// Creating a client of node-redis builds a class with all commands for every new address; a duplicate shares one.
const nodeRedis6 = createClient6()
const nodeRedis5 = createClient5()

export const libraries: readonly ClientLibrary[] = [
  {
    name: 'ioredis 6',
    prefixes: true,
    async open(url, { database = 0, keyPrefix = '' } = {}) {
      const client = new IoRedis6(url, { db: database, keyPrefix })
      client.on('error', () => {})
      return { client, close: () => client.disconnect() }
    },
    async openCluster(urls) {
      const client = new IoRedisCluster6([...urls])
      client.on('error', () => {})
      return { client, close: () => client.disconnect() }
    },
  },
  {
    name: 'node-redis 6',
    prefixes: true,
    async open(url, { database = 0, keyPrefix } = {}) {
      const client = nodeRedis6.duplicate({ url, database, ...(keyPrefix !== undefined && { keyPrefix }) })
      client.on('error', () => {})
      await client.connect()
      return { client, close: () => client.isOpen && client.destroy() }
    },
    async openCluster(urls) {
      const client = createCluster6({ rootNodes: urls.map((url) => ({ url })) })
      client.on('error', () => {})
      await client.connect()
      return { client, close: () => client.isOpen && client.destroy() }
    },
  },
  {
    name: 'ioredis 5',
    prefixes: true,
    async open(url, { database = 0, keyPrefix = '' } = {}) {
      const client = new IoRedis5(url, { db: database, keyPrefix })
      client.on('error', () => {})
      return { client, close: () => client.disconnect() }
    },
    async openCluster(urls) {
      const client = new IoRedisCluster5([...urls])
      client.on('error', () => {})
      return { client, close: () => client.disconnect() }
    },
  },
  {
    name: 'node-redis 5',
    prefixes: false,
    async open(url, { database = 0 } = {}) {
      const client = nodeRedis5.duplicate({ url, database })
      client.on('error', () => {})
      await client.connect()
      return { client, close: () => client.isOpen && client.destroy() }
    },
    async openCluster(urls) {
      const client = createCluster5({ rootNodes: urls.map((url) => ({ url })) })
      client.on('error', () => {})
      await client.connect()
      return { client, close: () => client.isOpen && client.destroy() }
    },
  },
]

/** Clients of ioredis that forget the commands in flight when their connection closes: those never settle. */
export const forgetfulLibraries: readonly ClientLibrary[] = [
  IoRedis6,
  IoRedis5 as unknown as typeof IoRedis6,
].map((Redis, index) => ({
  ...libraryNamed(index === 0 ? 'ioredis 6' : 'ioredis 5'),
  name: `ioredis ${6 - index} without resending`,
  async open(url) {
    const client = new Redis(url, { autoResendUnfulfilledCommands: false })
    client.on('error', () => {})
    return { client, close: () => client.disconnect() }
  },
}))

export function libraryNamed(name: string): ClientLibrary {
  const found = libraries.find((library) => library.name === name)
  if (found === undefined) throw new Error(`there is no library ${name}`)
  return found
}
