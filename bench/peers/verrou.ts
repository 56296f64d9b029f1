/** Never renews; waiters poll every 250 ms, for ever. */
import { Verrou } from '@verrou/core'
import { redisStore } from '@verrou/core/drivers/redis'
import { ioredis6 } from '../redis/clients.ts'
import { ttlMs } from '../redis/raw.ts'
import type { Taker } from '../subject.ts'
import { nameAndVersion } from '../versions.ts'

export function verrou(url: string): Taker {
  return {
    name: nameAndVersion('@verrou/core'),
    async openTaking() {
      const { client, close } = await ioredis6.open(url)
      const verrou = new Verrou({
        default: 'redis',
        stores: { redis: { driver: redisStore({ connection: client }) } },
      })
      return {
        async take(name) {
          const lock = verrou.createLock(`verrou:${name}`, ttlMs)
          return (await lock.acquire()) ? () => lock.release() : null
        },
        close: async () => close(),
      }
    },
  }
}
