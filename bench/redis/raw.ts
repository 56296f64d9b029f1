/** The classic recipe, with nothing around it: `SET NX PX` of a random value, and a script that deletes if it is still there. */
import { randomUUID } from 'node:crypto'
import type { Taker } from '../subject.ts'
import type { Library } from './clients.ts'

export const ttlMs = 15_000

const deleteIfMine = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

/** The methods of ioredis 5 or 6 that the recipe needs. */
interface IoredisCommands {
  set(key: string, value: string, px: 'PX', ttlMs: number, nx: 'NX'): Promise<'OK' | null>
  script(load: 'LOAD', source: string): Promise<unknown>
  evalsha(sha: string, keyCount: number, key: string, value: string): Promise<unknown>
}

/** And of node-redis, 5 or 6. */
interface NodeRedisCommands {
  set(key: string, value: string, options: { NX: true; PX: number }): Promise<unknown>
  scriptLoad(source: string): Promise<string>
  evalSha(sha: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>
}

export function rawIoredis(library: Library<IoredisCommands>, url: string): Taker {
  return {
    name: 'raw',
    async openTaking() {
      const { client, close } = await library.open(url)
      const sha = String(await client.script('LOAD', deleteIfMine))
      return {
        async take(name) {
          const key = `raw:${name}`
          const value = randomUUID()
          if ((await client.set(key, value, 'PX', ttlMs, 'NX')) !== 'OK') return null
          return () => client.evalsha(sha, 1, key, value)
        },
        close: async () => close(),
      }
    },
  }
}

export function rawNodeRedis(library: Library<NodeRedisCommands>, url: string): Taker {
  return {
    name: 'raw',
    async openTaking() {
      const { client, close } = await library.open(url)
      const sha = await client.scriptLoad(deleteIfMine)
      return {
        async take(name) {
          const key = `raw:${name}`
          const value = randomUUID()
          if ((await client.set(key, value, { NX: true, PX: ttlMs })) !== 'OK') return null
          return () => client.evalSha(sha, { keys: [key], arguments: [value] })
        },
        close: async () => close(),
      }
    },
  }
}

/** The same on several servers, and a majority awaited; nothing is counted, undone or checked for its age. */
export function rawOnMajority(
  library: Library<IoredisCommands>,
  urls: readonly string[],
  name: string,
): Taker {
  const one = urls.map((url) => rawIoredis(library, url))
  const majority = Math.floor(urls.length / 2) + 1
  return {
    name,
    async openTaking() {
      const nodes = await Promise.all(one.map((node) => node.openTaking()))
      return {
        async take(resource) {
          const taking = nodes.map((node) => node.take(resource, 0))
          await first(majority, taking)
          return () =>
            first(
              majority,
              taking.map(async (taken) => (await taken)?.()),
            )
        },
        async close() {
          for (const node of nodes) await node.close()
        },
      }
    },
  }
}

function first(count: number, promises: readonly Promise<unknown>[]): Promise<void> {
  return new Promise((resolve, reject) => {
    let done = 0
    for (const promise of promises) promise.then(() => ++done === count && resolve(), reject)
  })
}
