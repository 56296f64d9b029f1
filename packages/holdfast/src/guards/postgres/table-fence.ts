/**
 * A trigger that fences a whole table against every client, also in other languages: a write without a fence in the
 * setting `holdfast.fence`, or with a stale one, is refused by the database itself.
 *
 * ```sql
 * BEGIN;
 * SET LOCAL holdfast.fence = 'hf1/bank/accounts/exclusive/34/5bTs…';   -- formatFence(lease.fence)
 * UPDATE accounts SET balance = 90 WHERE id = 7;
 * COMMIT;
 * ```
 *
 * It is not a `Guard`, by type: a trigger sees no reads, and guarding writes alone loses updates (T40). Read in the same
 * transaction, after `postgresGuard(…).enter(tx, lease)`, which also sets the fence for the trigger.
 */
import {
  arrayLiteral,
  checkIdentifier,
  checkSchema,
  ensureTables,
  type PostgresClient,
  quoteIdentifier,
  quoteTable,
  type SqlTransaction,
  serverStateOf,
  sharedDatabase,
  sqlRunnerOf,
  tablesSql,
  typedStep,
} from '../../clients/postgres/index.ts'
import { limits } from '../../core/defaults.ts'
import { InvalidArgumentError } from '../../core/errors.ts'
import { fenceText } from '../../core/fence.ts'
import { checkName, checkText } from '../../core/names.ts'
import { checkKnownOptions } from '../../core/options.ts'
import type { Proof } from '../guard.ts'
import { assertHeld, checkProofs } from '../proofs.ts'
import { checkGuardOptions } from '../settings.ts'
import { guardTables } from './layout.ts'
import { FENCE_SETTING } from './statements.ts'

export interface TableFenceOptions {
  /** `table` or `schema.table`. */
  readonly table: string
  /** The name that is locked to write the table; or, with `column`, the beginning of the names of its rows. */
  readonly name: string
  /** Each row has a name of its own: `name` and then what stands in this column, for example `account/` and `id`. */
  readonly column?: string
  /** The name of the guard whose memory it shares. Default `default`, as of `postgresGuard`. */
  readonly guard?: string
  /** As of `postgresGuard`. */
  readonly issuers?: readonly string[]
  /** Where the guard's tables are. Default `holdfast`. */
  readonly schema?: string
}

/** Writes only. For reads, and so for G5, use `enter` or `run` of a `postgresGuard` in the same transaction. */
export interface TableFence {
  readonly guards: 'writes'
  /** What `install` runs, for those who apply migrations by themselves. It can be run again. */
  readonly installSql: string
  readonly removeSql: string
  /** In one transaction. It waits for those who are writing to the table. */
  install(client: PostgresClient): Promise<void>
  /** Takes the trigger away. What the guard remembers stays. */
  remove(client: PostgresClient): Promise<void>
}

const TRIGGERS = ['holdfast_fence', 'holdfast_fence_truncate'] as const

export function tableFence(options: TableFenceOptions): TableFence {
  if (options === undefined) throw new InvalidArgumentError('tableFence options', 'must be given.')
  checkKnownOptions('tableFence options', options, ['table', 'name', 'column', 'guard', 'issuers', 'schema'])
  const table = quoteTable('table', options.table)
  const schema = checkSchema(options.schema)
  const statements = createTriggers(table, schema, options)
  const drop = TRIGGERS.map((trigger) => `DROP TRIGGER IF EXISTS ${trigger} ON ${table};`)
  return {
    guards: 'writes',
    installSql: [tablesSql(guardTables, schema).trim(), ...drop, ...statements, ''].join('\n'),
    removeSql: [...drop, ''].join('\n'),
    install: (client) =>
      inTransaction(client, async (query, runner) => {
        await ensureTables(runner, guardTables, schema, { create: true })
        for (const statement of [...drop, ...statements]) await query(statement)
      }),
    remove: (client) =>
      inTransaction(client, async (query) => {
        for (const statement of drop) await query(statement)
      }),
  }
}

type Query = (statement: string) => Promise<unknown>

function inTransaction(
  client: PostgresClient,
  body: (query: Query, runner: Parameters<typeof ensureTables>[0]) => Promise<void>,
): Promise<void> {
  return typedStep(() =>
    sharedDatabase(client).transaction(async (tx) => {
      await tx.query("SELECT set_config('client_min_messages', 'warning', true)")
      await body((statement) => tx.query(statement), tx)
    }),
  )
}

function createTriggers(table: string, schema: string, options: TableFenceOptions): readonly string[] {
  const { column, guard, issuers } = options
  const settings = checkGuardOptions({
    ...(guard !== undefined && { name: guard }),
    ...(issuers !== undefined && { issuers }),
  })
  const name =
    column === undefined
      ? checkName(options.name)
      : options.name === ''
        ? ''
        : checkText('name', options.name, limits.nameBytes)
  const parameters = [
    settings.name,
    settings.issuers === null ? '' : arrayLiteral(settings.issuers),
    name,
    ...(column === undefined ? [] : [checkIdentifier('column', column)]),
  ]
  const call = `EXECUTE FUNCTION ${quoteIdentifier(schema)}.fence_row(${parameters.map(literal).join(', ')})`
  return [
    // Row by row, also where the table has one name: only such a trigger goes along to the partitions of a table.
    `CREATE TRIGGER ${TRIGGERS[0]} BEFORE INSERT OR UPDATE OR DELETE ON ${table} FOR EACH ROW ${call};`,
    `CREATE TRIGGER ${TRIGGERS[1]} BEFORE TRUNCATE ON ${table} FOR EACH STATEMENT ${call};`,
  ]
}

/** A string constant; statements that create something take no parameters. */
function literal(text: string): string {
  const quoted = `'${text.replaceAll("'", "''")}'`
  return text.includes('\\') ? ` E${quoted.replaceAll('\\', '\\\\')}` : quoted
}

/**
 * Shows fences to the triggers of fenced tables until the end of the transaction, where no `enter` does it. It adds to
 * those that are shown already.
 */
export async function showFence(tx: SqlTransaction, proof: Proof | readonly Proof[]): Promise<void> {
  const proofs = checkProofs(proof, false)
  assertHeld(proofs)
  const texts = proofs.map(({ fence }) => fenceText(fence)).join(' ')
  await typedStep(() =>
    sqlRunnerOf(tx).query(
      `SELECT set_config('${FENCE_SETTING}',
        concat_ws(' ', nullif(current_setting('${FENCE_SETTING}', true), ''), $1::text), true)`,
      [texts],
    ),
  )
}

export type WriteRefusal = 'missing' | 'stale' | 'foreign' | 'invalid'

const refusals = new Map<string, WriteRefusal>([
  ['HF100', 'missing'],
  ['HF101', 'stale'],
  ['HF102', 'foreign'],
  ['HF103', 'invalid'],
])

/** Why a fenced table refused a write; null if `error` is something else. */
export function writeRefusalOf(error: unknown): WriteRefusal | null {
  return refusals.get(serverStateOf(error) ?? '') ?? null
}
