/** `acquire` does not renew; waiters poll every 100 ms and give up after three times. */
import {
  createLock,
  IoredisAdapter,
  LockAcquisitionError,
  NodeRedisAdapter,
  type RedisAdapter,
} from 'redlock-universal'
import { ioredis6, nodeRedis6 } from '../redis/clients.ts'
import { ttlMs } from '../redis/raw.ts'
import type { Taker } from '../subject.ts'
import { nameAndVersion } from '../versions.ts'

export function redlockUniversalIoredis(url: string): Taker {
  return taker(async () => {
    const { client, close } = await ioredis6.open(url)
    return { adapter: new IoredisAdapter(client), close }
  })
}

export function redlockUniversalNodeRedis(url: string): Taker {
  return taker(async () => {
    const { client, close } = await nodeRedis6.open(url)
    return { adapter: new NodeRedisAdapter(client), close }
  })
}

function taker(open: () => Promise<{ adapter: RedisAdapter; close(): void }>): Taker {
  return {
    name: nameAndVersion('redlock-universal'),
    async openTaking() {
      const { adapter, close } = await open()
      // A new lock object pings the server before its first acquire, so each name keeps its own.
      const locks = new Map<string, ReturnType<typeof createLock>>()
      return {
        async take(name) {
          const key = `redlock-universal:${name}`
          const lock = locks.get(key) ?? createLock({ adapter, key, ttl: ttlMs })
          locks.set(key, lock)
          try {
            const handle = await lock.acquire()
            return () => lock.release(handle)
          } catch (error) {
            if (error instanceof LockAcquisitionError) return null
            throw error
          }
        },
        close: async () => close(),
      }
    },
  }
}
