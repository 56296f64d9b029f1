/**
 * The schema in the user's database: created or upgraded by the first client that comes, refused when it is newer.
 *
 *   none ──▶ 5            tables and functions are made
 *   1 | 2 | 3 | 4 ──▶ 5   functions are added and replaced; the tables get columns and an index, and there are new ones. Clients
 *                         of the older version that run go on with the functions that they know, on the same tables, so they
 *                         and the new clients exclude each other. They refuse to start anew.
 *
 * What may go wrong between its steps: look · lock · look again · create · commit.
 *   Many start at once: one creates while the others wait for the lock, and then find it. A crash before the commit leaves
 *   nothing, because PostgreSQL creates tables and functions in transactions.
 */

import { BackendUnavailableError, quote, UnsupportedError } from '../../base/errors.ts'
import {
  type PostgresDatabase,
  quoteIdentifier,
  quoteText,
  type SqlRunner,
  sqlStateOf,
} from '../../clients/postgres/index.ts'
import { claims } from './sql/claims.ts'
import { events } from './sql/events.ts'
import { grants } from './sql/grants.ts'
import { locks } from './sql/locks.ts'
import { looking } from './sql/looking.ts'
import { operators } from './sql/operators.ts'
import { sessions } from './sql/sessions.ts'
import { tables } from './sql/tables.ts'
import { waiting } from './sql/waiting.ts'

export const SCHEMA_VERSION = 5
const OLDEST_VERSION = 1
const OLDEST_SERVER = 13

/** All statements that make the schema, or the present version of an older one. Running them twice does no harm. */
export function schemaSql(schema: string): string {
  const s = quoteIdentifier(schema)
  return [
    `DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = ${quoteText(schema)}) THEN
    CREATE SCHEMA ${s};
  END IF;
END $$;`,
    ...[tables, locks, events, grants, claims, sessions, waiting, operators, looking].map((part) => part(s)),
    `INSERT INTO ${s}.meta AS m (version, origin) VALUES (${SCHEMA_VERSION}, gen_random_uuid()::text)
ON CONFLICT (single) DO UPDATE SET version = excluded.version WHERE m.version < excluded.version;`,
  ].join('\n')
}

export interface Found {
  /** Made once with the schema; copies and backups carry it along. */
  readonly origin: string
  readonly hasStandby: boolean
}

/** Makes the schema if there is none, and upgrades an older one. */
export async function ensureSchema(
  database: PostgresDatabase,
  schema: string,
  options: { readonly create: boolean; readonly sql?: string },
): Promise<Found> {
  const hasStandby = await checkServer(database)
  const before = await look(database, schema)
  if (before?.version === SCHEMA_VERSION) return { origin: before.origin, hasStandby }
  if (!options.create)
    throw new UnsupportedError(
      `postgres: ${lackOf(schema, before?.version)}, and createSchema is off. ${remedy}`,
    )
  await makeOnce(database, schema, options.sql ?? schemaSql(schema), lackOf(schema, before?.version))
  const found = await look(database, schema)
  if (found === null)
    throw new UnsupportedError(`postgres: the schema ${quote(schema)} was removed while it was being used.`)
  return { origin: found.origin, hasStandby }
}

const remedy = 'Apply what postgresSchema() returns first.'

function lackOf(schema: string, version: number | undefined): string {
  return version === undefined
    ? `there is no schema ${quote(schema)} with Holdfast's tables`
    : `the schema ${quote(schema)} has version ${version} of the layout, and this Holdfast needs version ${SCHEMA_VERSION}`
}

/**
 * One statement without parameters, as a DO block takes none: what is half made is undone with it. The name of the schema has
 * been checked, and has no dollar that could end a quotation.
 */
async function makeOnce(
  database: PostgresDatabase,
  schema: string,
  sql: string,
  lack: string,
): Promise<void> {
  try {
    await database.query(`DO $holdfast_once$ BEGIN
      PERFORM pg_advisory_xact_lock(hashtextextended('holdfast schema ' || ${quoteText(schema)}, 0));
      IF EXISTS (
        SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = ${quoteText(schema)} AND c.relname = 'meta')
      THEN
        IF (SELECT version FROM ${quoteIdentifier(schema)}.meta) >= ${SCHEMA_VERSION} THEN
          RETURN;
        END IF;
      END IF;
      -- What exists already is worth a notice to the server.
      PERFORM set_config('client_min_messages', 'warning', true);
      EXECUTE $holdfast_schema$ ${sql} $holdfast_schema$;
    END $holdfast_once$`)
  } catch (error) {
    const cause = error instanceof Error ? error.cause : undefined
    if (sqlStateOf(cause) !== '42501') throw error
    throw new UnsupportedError(
      `postgres: ${lack}, and this user may not change that. Let the owner of the database or of the schema apply what ` +
        'postgresSchema() returns, and grant this user its tables and sequences.',
      { cause },
    )
  }
}

/** Null: there is none. */
async function look(
  runner: SqlRunner,
  schema: string,
): Promise<{ readonly version: number; readonly origin: string } | null> {
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
  if (version >= OLDEST_VERSION && version <= SCHEMA_VERSION) return { version, origin: String(found?.[1]) }
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
