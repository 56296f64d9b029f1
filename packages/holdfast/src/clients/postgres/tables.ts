/**
 * Tables that live beside the user's own: those of guards, of idempotency keys, of jobs, of advisory locks. Each part has a version of its
 * own in the table `parts`, so that a database has only what is used in it.
 *
 * What may go wrong between its steps: look · lock · look again · create.
 *   Many start at once: one creates while the others wait for the lock, and then find everything there. A transaction that
 *   cannot see it runs the statements again, which do no harm. It is the lock that the backend takes for the same schema. A crash before the commit leaves
 *   nothing. A later release brings an older layout up to date in the same way, if it can. Otherwise a release that finds
 *   another version refuses.
 */
import { type HoldfastError, InvalidArgumentError, quote, UnsupportedError } from '../../base/errors.ts'
import type { SqlRunner } from './database.ts'
import { sqlStateOf } from './failures.ts'
import { checkIdentifier, quoteIdentifier } from './identifiers.ts'

const DEFAULT_SCHEMA = 'holdfast'

/**
 * The name of a schema that can stand, quoted, in all of our statements: also within string constants, the bodies of
 * functions between dollars, and scripts that are split at the ends of lines.
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

/**
 * Set for the functions that clients call, and so for the plans of all that those call. A disabled scan that is still
 * needed gets a huge cost, which would trigger JIT (0.2 s).
 */
export const BY_INDEX = 'SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off'

/**
 * Statements that alter tables which calls in flight use. It waits for a lock only while it has none, so that a call and the
 * upgrade never wait for each other. All names are quoted.
 */
export function alterTables([first, ...others]: readonly [string, ...string[]], statements: string): string {
  return `
DO $$ BEGIN
  LOOP
    BEGIN
      LOCK TABLE ${first} IN ACCESS EXCLUSIVE MODE;
      LOCK TABLE ${others.join(', ')} IN ACCESS EXCLUSIVE MODE NOWAIT;
      EXIT;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM pg_sleep(0.01);
    END;
  END LOOP;
  ${statements.trim()}
END $$;
`
}

export interface TablePart {
  readonly part: string
  readonly version: number
  /** The oldest layout that `sql` brings up to date; by default it changes none. */
  readonly upgradesFrom?: number
  /** `schema` is quoted. Every statement can be run again. */
  readonly sql: (schema: string) => string
  /** Which function prints the SQL, for messages. */
  readonly printedBy: string
}

/** All statements that make the part, for those who apply them by themselves. */
export function tablesSql({ part, version, upgradesFrom = version, sql }: TablePart, schema: string): string {
  const s = quoteIdentifier(schema)
  return `CREATE SCHEMA IF NOT EXISTS ${s};
CREATE TABLE IF NOT EXISTS ${s}.parts (part text PRIMARY KEY, version integer NOT NULL, origin text NOT NULL);
${sql(s).trim()}
INSERT INTO ${s}.parts (part, version, origin) VALUES ('${part}', ${version}, gen_random_uuid()::text)
ON CONFLICT (part) DO UPDATE SET version = ${version} WHERE parts.version BETWEEN ${upgradesFrom} AND ${version - 1};
`
}

/**
 * Makes the part if it is not there; in the transaction of `runner`, so begin one first. `found` says whether it was
 * there already: what a transaction makes is gone when it is rolled back.
 */
export async function ensureTables(
  runner: SqlRunner,
  part: TablePart,
  schema: string,
  { create }: { readonly create: boolean },
): Promise<{ readonly origin: string; readonly found: boolean }> {
  const before = await find(runner, part, schema)
  if (before?.isCurrent) return { origin: before.origin, found: true }
  if (!create)
    throw new UnsupportedError(
      `postgres: the schema ${quote(schema)} has ${before === null ? 'no tables' : 'tables of an older release'} for ` +
        `${part.part}, and createSchema is off. Apply what ${part.printedBy} returns first.`,
    )
  try {
    await runner.query(`SELECT pg_advisory_xact_lock(hashtextextended('holdfast schema ' || $1, 0))`, [
      schema,
    ])
    const meanwhile = await find(runner, part, schema)
    if (meanwhile?.isCurrent) return { origin: meanwhile.origin, found: true }
    // What exists already is worth a notice to the server, and postgres.js prints those unless it is told otherwise.
    // Reads a catalog so that the session processes invalidations and sees a schema created while it waited for the lock.
    const [level] = await runner.query(
      "SELECT current_setting('client_min_messages') FROM pg_catalog.pg_namespace LIMIT 1",
    )
    await runner.query("SELECT set_config('client_min_messages', 'warning', true)")
    // One at a time: a client may not take several statements at once from a transaction that is the user's.
    for (const statement of statementsOf(tablesSql(part, schema))) await runner.query(statement)
    await runner.query("SELECT set_config('client_min_messages', $1, true)", [String(level?.[0])])
  } catch (error) {
    throw refusedCreation(error, part, schema) ?? error
  }
  return { origin: (await find(runner, part, schema))?.origin ?? '', found: false }
}

/** Null: the part is not there. `isCurrent` is false if its layout can and must be brought up to date. */
async function find(
  runner: SqlRunner,
  { part, version, upgradesFrom = version }: TablePart,
  schema: string,
): Promise<{ readonly origin: string; readonly isCurrent: boolean } | null> {
  const parts = `${quoteIdentifier(schema)}.parts`
  const [exists] = await runner.query('SELECT to_regclass($1)::text', [parts])
  if (exists?.[0] === null) return null
  const [row] = await runner.query(`SELECT version::text, origin FROM ${parts} WHERE part = $1`, [part])
  if (row === undefined) return null
  const found = Number(row[0])
  if (found >= upgradesFrom && found <= version)
    return { origin: String(row[1]), isCurrent: found === version }
  throw new UnsupportedError(
    `postgres: the tables for ${part} in the schema ${quote(schema)} have layout ${row[0]}, and this release of ` +
      `Holdfast knows ${version}. Update Holdfast in every process that uses the database.`,
  )
}

function refusedCreation(error: unknown, part: TablePart, schema: string): HoldfastError | null {
  const cause = sqlStateOf(error) === null && error instanceof Error ? error.cause : error
  if (sqlStateOf(cause) !== '42501') return null
  return new UnsupportedError(
    `postgres: this user may not create or update the tables for ${part.part} in the schema ${quote(schema)}. Let somebody who ` +
      `may apply what ${part.printedBy} returns, and grant this user the use of them.`,
    { cause },
  )
}

/** Split where a line ends with a semicolon, but not within a function's body between two lines with $$. */
export function statementsOf(sql: string): readonly string[] {
  const statements: string[] = []
  let lines: string[] = []
  let inBody = false
  for (const line of sql.split('\n')) {
    if (line.trim() === '' && lines.length === 0) continue
    lines.push(line)
    if (line.split('$$').length % 2 === 0) inBody = !inBody
    if (inBody || !line.trimEnd().endsWith(';')) continue
    statements.push(lines.join('\n'))
    lines = []
  }
  return statements
}
