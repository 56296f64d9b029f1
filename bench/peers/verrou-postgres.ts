/** A row for each lock, by the clock of the client. Never renews; waiters poll every 250 ms, for ever. */
import { Verrou } from '@verrou/core'
import { knexStore } from '@verrou/core/drivers/knex'
import knex from 'knex'
import { ttlMs } from '../postgres/raw.ts'
import type { Taker } from '../subject.ts'
import { nameAndVersion } from '../versions.ts'

export function verrouOnPostgres(url: string): Taker {
  return {
    name: nameAndVersion('@verrou/core'),
    async openTaking() {
      const connection = knex({ client: 'pg', connection: url, pool: { min: 0, max: 10 } })
      const verrou = new Verrou({
        default: 'postgres',
        stores: { postgres: { driver: knexStore({ connection }) } },
      })
      return {
        async take(name) {
          const lock = verrou.createLock(`verrou:${name}`, ttlMs)
          return (await lock.acquire()) ? () => lock.release() : null
        },
        close: () => connection.destroy(),
      }
    },
  }
}
