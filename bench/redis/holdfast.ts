/** Ours, on the same client libraries as the raw commands. */
import { createLocker } from 'holdfast'
import { type RedisClient, redis } from 'holdfast/redis'
import { redlock } from 'holdfast/redlock'
import { firstUrl, type Place, type Taker } from '../subject.ts'
import type { Library } from './clients.ts'
import { ttlMs } from './raw.ts'

export function holdfast(library: Library<RedisClient>, place: Place, name = 'holdfast'): Taker {
  return {
    name,
    async openTaking() {
      const { client, close } = await library.open(firstUrl(place))
      const namespace = `${place.namespace}-unfenced`
      const locker = createLocker(redis({ client, namespace }), { ttlMs })
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

export function holdfastFenced(library: Library<RedisClient>, place: Place, name = 'holdfast fenced'): Taker {
  return {
    name,
    async openTaking() {
      const { client, close } = await library.open(firstUrl(place))
      const namespace = `${place.namespace}-fenced`
      const locker = createLocker(redis({ client, fencing: 'clock-backed', namespace }), { ttlMs })
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

export function holdfastRedlock(
  library: Library<RedisClient>,
  { urls, namespace }: Place,
  name: string,
): Taker {
  return {
    name,
    async openTaking() {
      const opened = await Promise.all(urls.map((url) => library.open(url)))
      const clients = opened.map(({ client }) => client)
      // The nodes have started for this run and have forgotten nothing; else their votes would not count for the first minute.
      const locker = createLocker(redlock({ clients, namespace, persistence: 'every-write' }), { ttlMs })
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
