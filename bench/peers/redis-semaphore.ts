/** Renews by itself at 0.8 of the TTL; waiters poll every 10 ms and give up after 10 s. */
import { Mutex, TimeoutError } from 'redis-semaphore'
import { ioredis6 } from '../redis/clients.ts'
import { ttlMs } from '../redis/raw.ts'
import type { Taker } from '../subject.ts'
import { nameAndVersion } from '../versions.ts'

export function redisSemaphore(url: string): Taker {
  return {
    name: nameAndVersion('redis-semaphore'),
    async openTaking() {
      const { client, close } = await ioredis6.open(url)
      return {
        async take(name) {
          const mutex = new Mutex(client, name, { lockTimeout: ttlMs })
          try {
            await mutex.acquire()
          } catch (error) {
            if (error instanceof TimeoutError) return null
            throw error
          }
          return () => mutex.release()
        },
        close: async () => close(),
      }
    },
  }
}
