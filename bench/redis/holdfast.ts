/** Ours, on the same client libraries as the raw commands. */
import { createLocker } from 'holdfast'
import { type RedisClient, redis } from 'holdfast/redis'
import { redlock } from 'holdfast/redlock'
import type { Taker } from '../subject.ts'
import type { Library } from './clients.ts'
import { ttlMs } from './raw.ts'

export function holdfast(library: Library<RedisClient>, url: string, name = 'holdfast'): Taker {
  return {
    name,
    async openTaking() {
      const { client, close } = await library.open(url)
      const locker = createLocker(redis({ client, namespace: 'unfenced' }), { ttlMs })
      return {
        async take(name) {
          const lease = await locker.acquire(name)
          return () => lease.release()
        },
        async close() {
          await locker.close()
          close()
        },
      }
    },
  }
}

export function holdfastFenced(library: Library<RedisClient>, url: string, name = 'holdfast fenced'): Taker {
  return {
    name,
    async openTaking() {
      const { client, close } = await library.open(url)
      const locker = createLocker(redis({ client, fencing: 'clock-backed', namespace: 'fenced' }), { ttlMs })
      return {
        async take(name) {
          const lease = await locker.acquire(name)
          return () => lease.release()
        },
        async close() {
          await locker.close()
          close()
        },
      }
    },
  }
}

export function holdfastRedlock(library: Library<RedisClient>, urls: readonly string[], name: string): Taker {
  return {
    name,
    async openTaking() {
      const opened = await Promise.all(urls.map((url) => library.open(url)))
      const clients = opened.map(({ client }) => client)
      // The nodes have started for this run and have forgotten nothing; else their votes would not count for the first minute.
      const locker = createLocker(redlock({ clients, persistence: 'every-write' }), { ttlMs })
      return {
        async take(name) {
          const lease = await locker.acquire(name)
          return () => lease.release()
        },
        async close() {
          await locker.close()
          for (const { close } of opened) close()
        },
      }
    },
  }
}
