/** A table to protect in PostgreSQL, through either client library, for tests of guards. */
import pg from 'pg'
import type { SqlTransaction } from '../../src/engines/postgres/client/index.ts'
import { sqlRunnerOf } from '../../src/engines/postgres/client/index.ts'
import {
  type PostgresClient,
  type PostgresGuard,
  postgresGuard,
} from '../../src/engines/postgres/guard/postgres-guard.ts'
import type { GuardWorld } from '../../src/testing/describe-guard.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import type { ClientLibrary, OpenedClient } from './clients.ts'

export interface GuardSite extends AsyncDisposable {
  world(): Promise<GuardWorld<SqlTransaction>>
}

/** One schema for all worlds of a site, emptied for each. */
export function guardSite(library: ClientLibrary, url: string, schema: string, prepare: boolean): GuardSite {
  let opened: OpenedClient = library.open(url, { max: 8, prepare })
  const cells = `${schema}_cells`
  let isMade = false
  const query = async (text: string, parameters: string[] = []) =>
    sqlRunnerOf(opened.client as unknown as SqlTransaction).query(text, parameters)
  return {
    async world() {
      const clock = createFakeClock()
      if (isMade)
        for (const table of [`${schema}.guards`, `${schema}.guard_names`, `${schema}.guard_issuers`, cells])
          await query(`DELETE FROM ${table}`)
      else {
        await query(`CREATE TABLE ${cells} (key text PRIMARY KEY, value text NOT NULL)`)
        await postgresGuard({ client: opened.client, schema }).highest('n')
        isMade = true
      }
      return {
        guard: async (options) =>
          postgresGuard({
            ...options,
            client: opened.client,
            schema,
            clock,
          }) as unknown as PostgresGuard<SqlTransaction>,
        read: async (tx, key) => readCell(tx, cells, key),
        async write(tx, key, value) {
          await sqlRunnerOf(tx).query(
            `INSERT INTO ${cells} VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
            [key, value],
          )
        },
        stored: (key) => readCell(opened.client as unknown as SqlTransaction, cells, key),
        transaction: (_guard, body) => inTransaction(opened.client, body),
        outsideTransaction: async () => opened.client as unknown as SqlTransaction,
        passTime: (ms) => clock.advance(ms),
        async reopen() {
          await opened[Symbol.asyncDispose]()
          opened = library.open(url, { max: 8, prepare })
        },
        close: async () => {},
      }
    },
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  }
}

async function readCell(tx: SqlTransaction, cells: string, key: string): Promise<string | undefined> {
  const [row] = await sqlRunnerOf(tx).query(`SELECT value FROM ${cells} WHERE key = $1`, [key])
  return row?.[0] as string | undefined
}

/** A transaction as users of the library write it. */
export async function inTransaction<T>(
  client: PostgresClient,
  body: (tx: SqlTransaction) => Promise<T>,
): Promise<T> {
  if (!(client instanceof pg.Pool)) {
    const { begin } = client as unknown as { begin(work: (tx: SqlTransaction) => Promise<T>): Promise<T> }
    return begin(body)
  }
  const connection = await client.connect()
  try {
    await connection.query('BEGIN')
    const result = await body(connection)
    await connection.query('COMMIT')
    return result
  } catch (error) {
    await connection.query('ROLLBACK')
    throw error
  } finally {
    connection.release()
  }
}
