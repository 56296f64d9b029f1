/**
 * The tables and functions in the user's database. The registry in `clients/postgres/tables.ts` creates and upgrades them.
 *
 *   1 | 2 | 3 ──▶ 4   functions are added and replaced; the tables get columns and an index, and there are new ones. Clients
 *                     of the older version that run go on with the functions that they know, on the same tables, so they and
 *                     the new clients exclude each other. They refuse to start anew.
 */
import { UnsupportedError } from '../../base/errors.ts'
import {
  checkServer,
  ensureTables,
  type PostgresDatabase,
  quoteIdentifier,
  READ_AND_WRITE,
  type TablePart,
} from '../../clients/postgres/index.ts'
import { claims } from './sql/claims.ts'
import { events } from './sql/events.ts'
import { looking } from './sql/looking.ts'
import { older } from './sql/older.ts'
import { operators } from './sql/operators.ts'
import { sessions } from './sql/sessions.ts'
import { single } from './sql/single.ts'
import { tables, upgradedTables } from './sql/tables.ts'
import { turns } from './sql/turns.ts'
import { waiting } from './sql/waiting.ts'

export const SCHEMA_VERSION = 4
const SERVER = { backend: 'postgres', version: 13, ifOlder: 'Upgrade it.' }

/** All statements that make the schema, in the order in which they must run. */
export function schemaSql(schema: string): string {
  return create(quoteIdentifier(schema))
}

/** All statements that make the present version of an older one. Running it twice does no harm. */
export function upgradeSql(schema: string): string {
  return upgrade(quoteIdentifier(schema))
}

function create(s: string): string {
  return [
    `CREATE SCHEMA IF NOT EXISTS ${s};`,
    tables(s),
    ...functions(s),
    `INSERT INTO ${s}.meta (version, origin) VALUES (${SCHEMA_VERSION}, gen_random_uuid()::text);`,
  ].join('\n')
}

function upgrade(s: string): string {
  return [
    upgradedTables(s),
    ...functions(s),
    older(s),
    `UPDATE ${s}.meta SET version = ${SCHEMA_VERSION};`,
  ].join('\n')
}

function functions(s: string): readonly string[] {
  return [events, turns, claims, single, sessions, waiting, operators, looking].map((part) => part(s))
}

const lockTables: TablePart = {
  part: 'locks',
  version: SCHEMA_VERSION,
  upgradesFrom: 1,
  relations: {
    tokens: ['USAGE'],
    places: ['USAGE'],
    sessions: READ_AND_WRITE,
    holders: READ_AND_WRITE,
    waiters: READ_AND_WRITE,
    marks: READ_AND_WRITE,
    names: READ_AND_WRITE,
    logs: READ_AND_WRITE,
    watchers: READ_AND_WRITE,
    events: READ_AND_WRITE,
  },
  printedBy: 'postgresSchema()',
  sql: create,
  own: { table: 'meta', upgrade, upgradePrintedBy: 'postgresSchema({ upgrade: true })' },
}

/** Makes the schema if there is none, and upgrades an older one. Returns its origin. `sql` is for tests. */
export async function ensureSchema(
  database: PostgresDatabase,
  schema: string,
  options: { readonly create: boolean; readonly sql?: string },
): Promise<string> {
  const isolation = await checkServer(database, SERVER)
  if (isolation !== 'read committed') throw wrongIsolation(isolation)
  const { sql } = options
  const part = sql === undefined ? lockTables : { ...lockTables, sql: () => sql }
  const { origin } = await ensureTables(database, part, schema, options)
  return origin
}

export function wrongIsolation(found: string, options?: ErrorOptions): UnsupportedError {
  return new UnsupportedError(
    `postgres: connections of this client have the isolation level ${found} by default. Who waits for a lock must see ` +
      'what was written meanwhile, which takes READ COMMITTED: give Holdfast a client without ' +
      'default_transaction_isolation.',
    options,
  )
}
