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
  type SqlRunner,
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
  /**
   * Each row has a name of its own: `name` and then what stands in this column, for example `account/` and `id`. Equal
   * values must have one text: an integer, a text, a uuid, a numeric with a scale. `install` refuses others.
   */
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
  /** In one transaction. It waits for those who are writing to the table. Run it again for new children of the table. */
  install(client: PostgresClient): Promise<void>
  /** Takes the trigger away. What the guard remembers stays. */
  remove(client: PostgresClient): Promise<void>
}

export function tableFence(options: TableFenceOptions): TableFence {
  if (options === undefined) throw new InvalidArgumentError('tableFence options', 'must be given.')
  checkKnownOptions('tableFence options', options, ['table', 'name', 'column', 'guard', 'issuers', 'schema'])
  const table = quoteTable('table', options.table)
  const schema = checkSchema(options.schema)
  const { column } = options
  const call = callOf(schema, options)
  const install = [
    ...(column === undefined ? [] : [checkColumn(table, column)]),
    forEachTable(table, [...drop, ...create(call, column !== undefined)]),
  ]
  const remove = forEachTable(table, drop)
  return {
    guards: 'writes',
    installSql: [tablesSql(guardTables, schema).trim(), ...install, ''].join('\n'),
    removeSql: `${remove}\n`,
    install: (client) =>
      inTransaction(client, async (tx) => {
        await ensureTables(tx, guardTables, schema, { create: true })
        for (const statement of install) await tx.query(statement)
      }),
    remove: (client) => inTransaction(client, (tx) => tx.query(remove)),
  }
}

function inTransaction(client: PostgresClient, body: (tx: SqlRunner) => Promise<unknown>): Promise<void> {
  return typedStep(() =>
    sharedDatabase(client).transaction(async (tx) => {
      await tx.query("SELECT set_config('client_min_messages', 'warning', true)")
      await body(tx)
    }),
  )
}

/** A statement about a trigger of each table; `%s` is the table. */
interface ForTable {
  readonly text: string
  /** Whether the server makes and drops it at the partitions of a table by itself: triggers for each row. */
  readonly goesAlong: boolean
}

const drop: readonly ForTable[] = [
  { text: 'DROP TRIGGER IF EXISTS holdfast_fence ON %s', goesAlong: true },
  { text: 'DROP TRIGGER IF EXISTS holdfast_fence_result ON %s', goesAlong: true },
  { text: 'DROP TRIGGER IF EXISTS holdfast_fence_truncate ON %s', goesAlong: false },
]

function create(call: string, byRow: boolean): readonly ForTable[] {
  const onTable = (name: string, when: string, level: string) =>
    `CREATE TRIGGER ${name} ${when} ON %s FOR EACH ${level} ${call.replaceAll('%', '%%')}`
  return [
    // Row by row, also where the table has one name: only such a trigger goes along to the partitions of a table.
    { text: onTable('holdfast_fence', 'BEFORE INSERT OR UPDATE OR DELETE', 'ROW'), goesAlong: true },
    ...(byRow
      ? [{ text: onTable('holdfast_fence_result', 'AFTER INSERT OR UPDATE', 'ROW'), goesAlong: true }]
      : []),
    { text: onTable('holdfast_fence_truncate', 'BEFORE TRUNCATE', 'STATEMENT'), goesAlong: false },
  ]
}

/**
 * For the table and all that inherit from it now: a write to a parent changes the rows of its children without asking the
 * triggers of the parent, and TRUNCATE of a partition asks only those of the partition. A foreign table has no TRUNCATE
 * triggers before PostgreSQL 14, and is left out there.
 */
function forEachTable(table: string, statements: readonly ForTable[]): string {
  const execute = statements.map(({ text, goesAlong }) => {
    const condition = goesAlong ? 'NOT is_partition' : "kind <> 'f'"
    return `    IF ${condition} THEN EXECUTE pg_catalog.format(${literal(text)}, fenced::regclass); END IF;`
  })
  return `DO ${literal(`DECLARE
  fenced oid;
  is_partition boolean;
  kind "char";
BEGIN
  FOR fenced, is_partition, kind IN
    WITH RECURSIVE tree (relid, depth) AS (
      SELECT pg_catalog.to_regclass(${literal(table)})::oid, 0
      UNION SELECT i.inhrelid, depth + 1 FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.relid)
    SELECT c.oid, bool_or(c.relispartition AND depth > 0), c.relkind FROM tree JOIN pg_catalog.pg_class c ON c.oid = relid
    GROUP BY c.oid, c.relkind ORDER BY min(depth)
  LOOP
${execute.join('\n')}
  END LOOP;
END`)};`
}

/** In these types, values that are equal have one text, in every session: a row has one name. */
const KEY_TYPES = [
  'smallint',
  'integer',
  'bigint',
  'uuid',
  'text',
  'character varying',
  'character',
  'date',
  'boolean',
]

function checkColumn(table: string, column: string): string {
  const types = KEY_TYPES.map((type) => `'${type}'::regtype`).join(', ')
  const name = literal(column)
  return `DO ${literal(`BEGIN
  PERFORM FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
  WHERE a.attrelid = ${literal(table)}::regclass AND a.attname = ${name} AND NOT a.attisdropped AND a.attgenerated = ''
    AND coalesce(c.collisdeterministic, true)
    AND (coalesce(nullif(t.typbasetype, 0), t.oid) IN (${types}) OR t.typtype = 'e'
      OR (t.oid = 'numeric'::regtype AND a.atttypmod >= 0));
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the column % cannot be the key of a fence', ${name} USING ERRCODE = '42804',
      DETAIL = 'It must exist and not be generated, and values that are equal must have one text: an integer, a text, a uuid, a numeric with a scale.';
  END IF;
END`)};`
}

/** What the triggers execute. */
function callOf(schema: string, options: TableFenceOptions): string {
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
  return `EXECUTE FUNCTION ${quoteIdentifier(schema)}.fence_row(${parameters.map(literal).join(', ')})`
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
