/** A fork of redlock 5 with the same defaults: no renewal by `acquire`, and ten polls every 200 ± 100 ms. */
import { ExecutionError, Redlock } from '@sesamecare-oss/redlock'
import { ioredis6 } from '../redis/clients.ts'
import { ttlMs } from '../redis/raw.ts'
import type { Taker } from '../subject.ts'
import { nameAndVersion } from '../versions.ts'

/** On one node, or on several. */
export function sesamecare(urls: readonly string[]): Taker {
  return {
    name: nameAndVersion('@sesamecare-oss/redlock'),
    async openTaking() {
      const opened = await Promise.all(urls.map((url) => ioredis6.open(url)))
      const redlock = new Redlock(opened.map(({ client }) => client))
      return {
        async take(name) {
          try {
            const lock = await redlock.acquire([`sesamecare:${name}`], ttlMs)
            return () => lock.release()
          } catch (error) {
            if (error instanceof ExecutionError) return null
            throw error
          }
        },
        async close() {
          for (const { close } of opened) close()
        },
      }
    },
  }
}
