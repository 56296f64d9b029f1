/** Ours, on the same client libraries as the raw statements. */
import { createLocker } from 'holdfast'
import { type PostgresClient, postgres } from 'holdfast/postgres'
import type { Taker } from '../subject.ts'
import { type Opened, openPg, openPostgresJs } from './clients.ts'
import { ttlMs } from './raw.ts'

export function holdfastPg(url: string, name = 'holdfast'): Taker {
  return holdfast(name, () => openPg(url))
}

export function holdfastPostgresJs(url: string, name = 'holdfast'): Taker {
  return holdfast(name, () => openPostgresJs(url))
}

function holdfast(name: string, open: () => Opened<PostgresClient>): Taker {
  return {
    name,
    async openTaking() {
      const { client, close } = open()
      const locker = createLocker(await postgres({ client }), { ttlMs })
      return {
        async take(resource) {
          const lease = await locker.acquire(resource)
          return () => lease.release()
        },
        async close() {
          await locker.close()
          await close()
        },
      }
    },
  }
}
