/**
 * The schema in the user's database: created by the first who comes, refused when it is newer.
 *
 * What may go wrong between its steps: look · lock · look again · create · commit.
 *   Many start at once: one creates while the others wait for the lock, and then find it. A crash before the commit leaves
 *   nothing, because PostgreSQL creates tables and functions in transactions. A reader of an older or newer release
 *   finds the version and refuses.
 */

import {
  type PostgresDatabase,
  quoteIdentifier,
  type SqlRunner,
  sqlStateOf,
} from '../../clients/postgres/index.ts'
import { BackendUnavailableError, quote, UnsupportedError } from '../../core/errors.ts'
import { claims } from './sql/claims.ts'
import { operators } from './sql/operators.ts'
import { sessions } from './sql/sessions.ts'
import { single } from './sql/single.ts'
import { tables } from './sql/tables.ts'
import { turns } from './sql/turns.ts'
import { waiting } from './sql/waiting.ts'

export const SCHEMA_VERSION = 1
const OLDEST_SERVER = 13

/** All statements that make the schema, in the order in which they must run. */
export function schemaSql(schema: string): string {
  const s = quoteIdentifier(schema)
  const parts = [tables, turns, claims, single, sessions, waiting, operators].map((part) => part(s))
  return [
    `CREATE SCHEMA IF NOT EXISTS ${s};`,
    ...parts,
    `INSERT INTO ${s}.meta (version, origin) VALUES (${SCHEMA_VERSION}, gen_random_uuid()::text);`,
  ].join('\n')
}

export interface Found {
  /** Made once with the schema; copies and backups carry it along. */
  readonly origin: string
  readonly hasStandby: boolean
}

/** Makes the schema if there is none. */
export async function ensureSchema(
  database: PostgresDatabase,
  schema: string,
  options: { readonly create: boolean; readonly sql?: string },
): Promise<Found> {
  const hasStandby = await checkServer(database)
  const before = await originOf(database, schema)
  if (before !== null) return { origin: before, hasStandby }
  if (!options.create)
    throw new UnsupportedError(
      `postgres: there is no schema ${quote(schema)} with Holdfast's tables, and createSchema is off. ` +
        'Apply what postgresSchema() returns first.',
    )
  try {
    await database.query(createOnce(schema, options.sql ?? schemaSql(schema)))
  } catch (error) {
    const cause = error instanceof Error ? error.cause : undefined
    if (sqlStateOf(cause) !== '42501') throw error
    throw new UnsupportedError(
      `postgres: the schema ${quote(schema)} does not exist, and this user may not create it. Let somebody who may apply ` +
        'what postgresSchema() returns, and grant this user its tables, sequences and functions.',
      { cause },
    )
  }
  const made = await originOf(database, schema)
  if (made === null)
    throw new UnsupportedError(`postgres: the schema ${quote(schema)} was removed while it was being used.`)
  return { origin: made, hasStandby }
}

/**
 * One statement: what is half made is undone with it, whoever dies in between. It has no
 * parameters: a DO block takes none. The name of the schema has been checked, and has no dollar that could end a quotation.
 */
function createOnce(schema: string, sql: string): string {
  const name = `'${schema.replaceAll("'", "''")}'`
  return `DO $holdfast_once$ BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast schema ' || ${name}, 0));
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = ${name} AND c.relname = 'meta'
    ) THEN
      EXECUTE $holdfast_schema$ ${sql} $holdfast_schema$;
    END IF;
  END $holdfast_once$`
}

/** Null: there is none. */
async function originOf(runner: SqlRunner, schema: string): Promise<string | null> {
  const [exists] = await runner.query(
    `SELECT count(*)::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = 'meta'`,
    [schema],
  )
  if (exists?.[0] === '0') return null
  const [found] = await runner.query(
    `SELECT version::text, origin FROM ${quoteIdentifier(schema)}.meta WHERE $1::text IS NOT NULL`,
    [schema],
  )
  const version = Number(found?.[0])
  if (version === SCHEMA_VERSION) return String(found?.[1])
  throw new UnsupportedError(
    `postgres: the schema ${quote(schema)} has version ${version} of the layout, and this Holdfast knows version ` +
      `${SCHEMA_VERSION}. Two layouts would not exclude each other, so all processes must use the same: upgrade this ` +
      'one, or choose another schema.',
  )
}

async function checkServer(database: PostgresDatabase): Promise<boolean> {
  const [row = []] = await database.query(
    `SELECT current_setting('server_version_num')::text, pg_is_in_recovery()::text,
      current_setting('synchronous_standby_names'), current_setting($1::text)`,
    ['transaction_isolation'],
  )
  const [version, inRecovery, standbys, isolation] = row.map(String)
  if (Number(version) < OLDEST_SERVER * 10_000)
    throw new UnsupportedError(`postgres: the server is older than PostgreSQL ${OLDEST_SERVER}. Upgrade it.`)
  if (inRecovery === 'true')
    throw new BackendUnavailableError(
      'postgres',
      'the server is a standby, which only reads; connect to the primary',
      'not-applied',
    )
  if (isolation !== 'read committed') throw wrongIsolation(isolation ?? 'another one')
  return standbys !== ''
}

export function wrongIsolation(found: string, options?: ErrorOptions): UnsupportedError {
  return new UnsupportedError(
    `postgres: connections of this client have the isolation level ${found} by default. Who waits for a lock must see ` +
      'what was written meanwhile, which takes READ COMMITTED: give Holdfast a client without ' +
      'default_transaction_isolation.',
    options,
  )
}
