/**
 * Runs our statements inside a transaction that is the user's: of `pg`, of postgres.js, of Kysely or Drizzle on top of
 * them, or of anything else through a function of its own.
 */
import { InvalidArgumentError } from '../../../base/errors.ts'
import type { SqlRunner } from './database.ts'
import { asPlainText } from './plain-text.ts'
import type { Parameter, PostgresJsRunner, Row } from './types.ts'

/** A client of `pg` on which the user has said BEGIN. */
export interface PgTransaction {
  query(query: { readonly text: string; readonly values?: Parameter[] }): Promise<unknown>
}

/** `Transaction` of Kysely. */
export interface KyselyTransaction {
  readonly isTransaction: boolean
  executeQuery(query: never): Promise<{ readonly rows: readonly unknown[] }>
}

/** `PgTransaction` of Drizzle, on `node-postgres` or `postgres-js`. */
export interface DrizzleTransaction {
  readonly _: { readonly session: object }
}

/** Runners of other libraries: they run a statement, and answer with the columns of its rows in order. */
export interface CustomTransaction {
  readonly run: (text: string, parameters: readonly Parameter[]) => Promise<readonly Row[]>
}

export type SqlTransaction =
  | PgTransaction
  | PostgresJsRunner
  | KyselyTransaction
  | DrizzleTransaction
  | CustomTransaction

/** Errors come through as the client throws them: the transaction is the user's, and so is what becomes of it. */
export function sqlRunnerOf(tx: SqlTransaction): SqlRunner {
  const query = queryOf(tx)
  return { query: (text, parameters = []) => query(text, parameters) }
}

type Run = (text: string, parameters: readonly Parameter[]) => Promise<readonly Row[]>

function queryOf(tx: SqlTransaction): Run {
  const known = typeof tx === 'function' || (typeof tx === 'object' && tx !== null) ? tx : undefined
  if (known !== undefined && 'unsafe' in known)
    return (text, parameters) => withPostgresJs(known, text, parameters)
  if (known !== undefined && 'executeQuery' in known)
    return (text, parameters) => withKysely(known, text, parameters)
  if (known !== undefined && '_' in known) return queryOf(clientOf(known))
  if (known !== undefined && 'run' in known && typeof known.run === 'function') return known.run
  if (known !== undefined && 'query' in known && typeof known.query === 'function')
    return (text, parameters) => withPg(known as PgTransaction, text, parameters)
  throw new InvalidArgumentError(
    'tx',
    'must be a transaction of pg, postgres.js, Kysely or Drizzle, or an object with a method run(text, parameters).',
  )
}

async function withPg(
  tx: PgTransaction,
  text: string,
  parameters: readonly Parameter[],
): Promise<readonly Row[]> {
  const query = { text, values: [...parameters], rowMode: 'array' }
  const answer = (await tx.query(query)) as { readonly rows: readonly Row[] }
  return answer.rows
}

async function withPostgresJs(
  tx: PostgresJsRunner,
  text: string,
  parameters: readonly Parameter[],
): Promise<readonly Row[]> {
  return (await tx.unsafe(text, asPlainText(tx, parameters), { prepare: true }).values()) as readonly Row[]
}

/** Runs a statement as Kysely's `CompiledQuery.raw`. Rows have the columns in order, whatever a plugin calls them. */
async function withKysely(
  tx: KyselyTransaction,
  text: string,
  parameters: readonly Parameter[],
): Promise<readonly Row[]> {
  const query = {
    sql: text,
    parameters,
    query: { kind: 'RawNode', sqlFragments: [text], parameters: [] },
    queryId: { queryId: 'holdfast' },
  }
  const { rows } = await tx.executeQuery(query as never)
  return rows.map((row) => Object.values(row as object))
}

function clientOf(tx: DrizzleTransaction): SqlTransaction {
  const client = (tx._.session as { readonly client?: SqlTransaction }).client
  if (client === undefined)
    throw new InvalidArgumentError(
      'tx',
      'is a transaction of Drizzle on a driver other than node-postgres and postgres-js.',
    )
  return client
}

/** To be read in a first statement, whose transaction it names. */
export const TRANSACTION_ID = 'pg_current_xact_id()::text'

/**
 * Makes sure that what the user gave us is in a transaction: otherwise each statement would be one of its own. A second
 * statement has the same transaction only if there is one around both; behind a pooler it may even reach
 * another session.
 */
export async function insistOnTransaction(runner: SqlRunner, id: unknown, otherwise: string): Promise<void> {
  const [row] = await runner.query(
    'SELECT (pg_current_xact_id_if_assigned()::text IS NOT DISTINCT FROM $1::text)::text',
    [String(id)],
  )
  if (row?.[0] !== 'true') throw new InvalidArgumentError('tx', otherwise)
}
