/** `acquire` does not renew; waiters poll every 200 ± 100 ms and give up after ten times. */
import Redlock, { ExecutionError } from 'redlock'
import { ioredis6 } from '../redis/clients.ts'
import { ttlMs } from '../redis/raw.ts'
import type { Taker } from '../subject.ts'
import { nameAndVersion } from '../versions.ts'

/** On one node, or on several. */
export function redlock5(urls: readonly string[]): Taker {
  return {
    name: nameAndVersion('redlock'),
    async openTaking() {
      const opened = await Promise.all(urls.map((url) => ioredis6.open(url)))
      const redlock = new Redlock(opened.map(({ client }) => client))
      return {
        async take(name) {
          try {
            const lock = await redlock.acquire([`redlock:${name}`], ttlMs)
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
