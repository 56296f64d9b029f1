/** Session advisory locks: taken and given back with nothing around them, and ours. */
import { createLocker } from 'holdfast'
import { type PgPool, postgresAdvisory } from 'holdfast/postgres/advisory'
import type { Taker } from '../subject.ts'
import { type Opened, openPg } from './clients.ts'
import { ttlMs } from './raw.ts'

const lock = 'SELECT pg_try_advisory_lock(hashtext($1)) AS got'
const unlock = 'SELECT pg_advisory_unlock(hashtext($1))'

/** On a connection of its own for each lock that is held: the one that took it must give it back. */
export function rawAdvisoryPg(url: string): Taker {
  return {
    name: 'raw',
    async openTaking() {
      const { client, close } = openPg(url)
      return {
        async take(name) {
          const connection = await client.connect()
          const { rows } = await connection.query<{ got: boolean }>(lock, [name])
          if (rows[0]?.got !== true) {
            connection.release()
            return null
          }
          return async () => {
            await connection.query(unlock, [name])
            connection.release()
          }
        },
        close,
      }
    },
  }
}

export function advisoryPg(url: string, name = 'holdfast'): Taker {
  return holdfast(name, () => openPg(url))
}

/** The server's own line, on a connection for each waiter. */
export function advisoryFloor(url: string): Taker {
  return {
    name: 'pg_advisory_lock, a connection each',
    async openTaking() {
      const { client, close } = openPg(url, 40)
      return {
        async take(name) {
          const connection = await client.connect()
          await connection.query('SELECT pg_advisory_lock(hashtext($1))', [name])
          return async () => {
            await connection.query(unlock, [name])
            connection.release()
          }
        },
        close,
      }
    },
  }
}

function holdfast(name: string, open: () => Opened<PgPool>): Taker {
  return {
    name,
    async openTaking() {
      const { client, close } = open()
      const locker = createLocker(await postgresAdvisory({ client }), { ttlMs })
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
