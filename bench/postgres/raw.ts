/**
 * A lease row with nothing around it, as one would write it by hand: an upsert where expired, with a token, and a DELETE
 * by owner, each its own transaction. The token is from a sequence, because a number in the row would start anew after
 * every DELETE and fence nobody.
 */
import { randomUUID } from 'node:crypto'
import type { Taker } from '../subject.ts'
import { openPg, openPostgresJs } from './clients.ts'

export const ttlMs = 15_000

const table = `CREATE SEQUENCE IF NOT EXISTS raw_tokens;
CREATE TABLE IF NOT EXISTS raw_leases (
  name text PRIMARY KEY, owner text NOT NULL, token bigint NOT NULL, expires_at timestamptz NOT NULL)`

const upsert = `INSERT INTO raw_leases (name, owner, token, expires_at)
  VALUES ($1, $2, nextval('raw_tokens'), clock_timestamp() + interval '${ttlMs} milliseconds')
  ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = excluded.token, expires_at = excluded.expires_at
  WHERE raw_leases.expires_at <= clock_timestamp() RETURNING token`

const remove = 'DELETE FROM raw_leases WHERE name = $1 AND owner = $2'

export function rawPg(url: string): Taker {
  return {
    name: 'raw',
    async openTaking() {
      const { client, close } = openPg(url)
      await client.query(table)
      return {
        async take(name) {
          const owner = randomUUID()
          const { rowCount } = await client.query(upsert, [name, owner])
          return rowCount === 1 ? () => client.query(remove, [name, owner]) : null
        },
        close,
      }
    },
  }
}

/** With its own defaults: statements that are prepared once per connection. */
export function rawPostgresJs(url: string): Taker {
  return {
    name: 'raw',
    async openTaking() {
      const { client, close } = openPostgresJs(url)
      await client.unsafe(table)
      const prepared = { prepare: true }
      return {
        async take(name) {
          const owner = randomUUID()
          const taken = await client.unsafe(upsert, [name, owner], prepared)
          if (taken.length === 0) return null
          return async () => {
            await client.unsafe(remove, [name, owner], prepared)
          }
        },
        close,
      }
    },
  }
}
