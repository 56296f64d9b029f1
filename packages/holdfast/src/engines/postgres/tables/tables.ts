/**
 * The registry of everything that Holdfast keeps in PostgreSQL: locks, advisory locks, guards, idempotency keys, jobs. Each part has a
 * version of its own, so that a database has only what is used in it.
 *
 *   none ──▶ current        created by the first client that comes
 *   another version ──▶ refused
 *
 * The steps: look · lock · look again · create · commit. Many clients start at once: one creates while the others wait for the
 * lock, and then find everything there. A transaction that cannot see it runs the statements again, which do no harm. A crash
 * before the commit leaves nothing.
 */

import type { Clock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { InvalidArgumentError, quote, UnsupportedError } from '../../../base/errors.ts'
import { typedStep } from '../client/conflicts.ts'
import type { PostgresDatabase, SqlRunner } from '../client/database.ts'
import { remedyOf, sqlStateOf } from '../client/failures.ts'
import { withinContact } from '../client/first-contact.ts'
import { checkIdentifier, quoteIdentifier, quoteText } from '../client/identifiers.ts'

const DEFAULT_SCHEMA = 'holdfast'

/**
 * The name of a schema that can stand, quoted, in all of our statements: also within string constants, and in the bodies of
 * functions between dollars.
 */
export function checkSchema(schema: unknown = DEFAULT_SCHEMA): string {
  const name = checkIdentifier('schema', schema)
  if (/[\\$\p{Cc}]/u.test(name) || name.startsWith('pg_'))
    throw new InvalidArgumentError(
      'schema',
      'must not contain a dollar sign, a backslash or a control character, nor start with pg_.',
    )
  return name
}

/** The options by which every user of the registry says where its tables are, and whether they may be created. */
export function checkSchemaOptions(options: { readonly schema?: unknown; readonly createSchema?: unknown }): {
  readonly schema: string
  readonly create: boolean
} {
  const { createSchema: create = true } = options
  if (typeof create !== 'boolean') throw new InvalidArgumentError('createSchema', 'must be true or false.')
  return { schema: checkSchema(options.schema), create }
}

/**
 * Set for the functions that clients call, and so for the plans of all that those call. A disabled scan that is still
 * needed gets a huge cost, which would trigger JIT (0.2 s).
 */
export const BY_INDEX = 'SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off'

type Right = 'SELECT' | 'INSERT' | 'UPDATE' | 'DELETE' | 'USAGE'

/** The rights on a table that is read and written. */
export const READ_AND_WRITE: readonly Right[] = ['SELECT', 'INSERT', 'UPDATE', 'DELETE']

export interface TablePart {
  readonly part: string
  readonly version: number
  /** Its tables, views and sequences, with the rights on each that every user needs. A stranger owns none of them (T80, functions for strangers). */
  readonly relations: Readonly<Record<string, readonly Right[]>>
  /** Creates it: every statement can be run again. `schema` is quoted. */
  readonly sql: (schema: string) => string
  /** Which function prints the SQL, for messages. */
  readonly printedBy: string
}

/** All statements that create the part, for users who apply them by themselves. */
export function tablesSql({ part, version, sql }: TablePart, schema: string): string {
  const s = quoteIdentifier(schema)
  // A user who may not create schemas can use one that is there.
  return `DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = ${quoteText(schema)}) THEN
    CREATE SCHEMA ${s};
  END IF;
END $$;
CREATE TABLE IF NOT EXISTS ${s}.parts (part text PRIMARY KEY, version integer NOT NULL, origin text NOT NULL);
DO $$ BEGIN
  IF EXISTS (SELECT FROM ${s}.parts WHERE part = ${quoteText(part)} AND version <> ${version}) THEN
    RAISE EXCEPTION 'the tables of Holdfast for ${part} are there with another layout than ${version}';
  END IF;
END $$;
${sql(s).trim()}
INSERT INTO ${s}.parts VALUES (${quoteText(part)}, ${version}, gen_random_uuid()::text) ON CONFLICT DO NOTHING;
`
}

/**
 * Creates the part if it is not there, and checks it. `found` says whether it was there already: what a transaction creates
 * is gone when it is rolled back. `origin` was made with the tables; copies and backups carry it along.
 */
export async function ensureTables(
  runner: SqlRunner,
  part: TablePart,
  schema: string,
  { create, sql = tablesSql(part, schema) }: { readonly create: boolean; readonly sql?: string },
): Promise<{ readonly origin: string; readonly found: boolean }> {
  const before = await originOf(runner, part, schema)
  if (before === null && !create)
    throw new UnsupportedError(
      `postgres: the schema ${quote(schema)} has no tables for ${part.part}, and createSchema is off. Apply what ` +
        `${part.printedBy} returns first.`,
    )
  if (before === null) await make(runner, part, schema, sql)
  const origin = before ?? (await originOf(runner, part, schema))
  if (origin === null)
    throw new UnsupportedError(`postgres: the schema ${quote(schema)} was removed while it was being used.`)
  await checkRelations(runner, part, schema)
  return { origin, found: before !== null }
}

/**
 * As `ensureTables`, at the first use and with a limit: all calls wait for the first one, so it must not wait for ever. The next
 * one has another connection. Returns the origin.
 */
export async function prepareTables(
  database: PostgresDatabase,
  part: TablePart,
  schema: string,
  { create, clock }: { readonly create: boolean; readonly clock: Clock },
): Promise<string> {
  const terms = { backend: 'postgres', clock, limitMs: defaults.callTimeoutMs }
  const { origin } = await withinContact(database, terms, (contact) =>
    typedStep(() => ensureTables(contact, part, schema, { create })),
  )
  return origin
}

/** Null: the part is not there. */
async function originOf(
  runner: SqlRunner,
  { part, version }: TablePart,
  schema: string,
): Promise<string | null> {
  const table = `${quoteIdentifier(schema)}.parts`
  const [exists] = await runner.query('SELECT to_regclass($1::text)::text', [table])
  if (exists?.[0] === null) return null
  const [row] = await runner.query(`SELECT version::text, origin FROM ${table} WHERE part = $1::text`, [part])
  if (row === undefined || Number(row[0]) === version) return row === undefined ? null : String(row[1])
  throw new UnsupportedError(
    `postgres: the tables for ${part} in the schema ${quote(schema)} have layout ${row[0]}, and this release of Holdfast ` +
      `knows ${version}. Use the same release in every process that uses the database, or choose another schema.`,
  )
}

/**
 * One statement, so that what is half made is undone with it. A DO block takes no parameters; the name of the schema has been
 * checked, and has no dollar that could end a quotation. Notices of what exists already are not for the user.
 */
async function make(
  runner: SqlRunner,
  { part, printedBy }: TablePart,
  schema: string,
  sql: string,
): Promise<void> {
  try {
    await runner.query(`DO $holdfast_once$
    DECLARE
      is_there boolean;
      level text := current_setting('client_min_messages');
    BEGIN
      PERFORM pg_advisory_xact_lock(hashtextextended('holdfast schema ' || ${quoteText(schema)}, 0));
      PERFORM set_config('client_min_messages', 'warning', true);
      IF to_regclass(${quoteText(`${quoteIdentifier(schema)}.parts`)}) IS NOT NULL THEN
        SELECT true INTO is_there FROM ${quoteIdentifier(schema)}.parts WHERE part = ${quoteText(part)};
      END IF;
      IF is_there IS NULL THEN
        EXECUTE $holdfast_tables$ ${sql} $holdfast_tables$;
      END IF;
      PERFORM set_config('client_min_messages', level, true);
    END $holdfast_once$`)
  } catch (error) {
    const cause = sqlStateOf(error) === null && error instanceof Error ? error.cause : error
    if (sqlStateOf(cause) !== '42501') throw error
    throw new UnsupportedError(
      `postgres: this user may not create the tables for ${part} in the schema ${quote(schema)}. Let a user who may apply ` +
        `what ${printedBy} returns, and grant this user the use of them.`,
      { cause },
    )
  }
}

const RELATIONS = `
  SELECT wanted.key, o.rolname::text,
    (c.relowner = n.nspowner OR o.rolname = current_user OR o.rolsuper)::text, (
    SELECT string_agg(needed, ' and ') FROM json_array_elements_text(wanted.value) needed
    WHERE NOT CASE c.relkind WHEN 'S' THEN has_sequence_privilege(c.oid, needed) ELSE has_table_privilege(c.oid, needed) END)
  FROM json_each($2::text::json) wanted
  JOIN pg_catalog.pg_class c ON c.relname = wanted.key
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = $1::text
  JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
  ORDER BY wanted.key`

async function checkRelations(
  runner: SqlRunner,
  { part, relations }: TablePart,
  schema: string,
): Promise<void> {
  const rows = await runner.query(RELATIONS, [schema, JSON.stringify(relations)])
  const found = rows.map(([name, owner, isTrusted, lacking]) => ({ name, owner, isTrusted, lacking }))
  const where = `the tables for ${part} in the schema ${quote(schema)}`
  const missing = Object.keys(relations).filter((name) => !found.some((relation) => relation.name === name))
  if (missing.length > 0)
    throw new UnsupportedError(
      `postgres: of ${where}, ${missing.join(', ')} is not there any more. Restore it, or drop all of them.`,
    )
  const hasOneOwner = new Set(found.map(({ owner }) => owner)).size <= 1
  const strange = hasOneOwner ? [] : found.filter(({ isTrusted }) => isTrusted !== 'true')
  if (strange.length > 0)
    throw new UnsupportedError(
      `postgres: ${where} have several owners, and ${strange.map(({ name, owner }) => `${name} belongs to ${owner}`).join(', ')}. ` +
        'It may be a table that another user has put there instead of ours: drop it, or give all of them one owner.',
    )
  const lacking = found.flatMap(({ name, lacking }) => (lacking === null ? [] : [`${lacking} on ${name}`]))
  if (lacking.length > 0)
    throw new UnsupportedError(
      `postgres: for ${where} this user lacks ${lacking.join(', ')} (SQLSTATE 42501). ${remedyOf('42501')}`,
    )
}
