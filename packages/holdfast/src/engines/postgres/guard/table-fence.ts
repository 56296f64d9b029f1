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
 * It is not a `Guard`, by type: a trigger sees no reads, and guarding writes alone loses updates (T40, unchecked reads). Read in the same
 * transaction, after `postgresGuard(…).enter(tx, lease)`, which also sets the fence for the trigger.
 */

import { limits } from '../../../base/defaults.ts'
import { InvalidArgumentError, UnsupportedError } from '../../../base/errors.ts'
import { fenceText } from '../../../base/fence.ts'
import { checkName, checkText } from '../../../base/names.ts'
import { checkKnownOptions } from '../../../base/options.ts'
import type { Proof } from '../../../guards/guard.ts'
import { assertHeld, checkProofs } from '../../../guards/proofs.ts'
import { checkGuardOptions } from '../../../guards/settings.ts'
import {
  arrayLiteral,
  checkIdentifier,
  type PostgresClient,
  quoteIdentifier,
  quoteTable,
  type SqlRunner,
  type SqlTransaction,
  serverStateOf,
  sharedDatabase,
  sqlRunnerOf,
  typedStep,
} from '../client/index.ts'
import { checkSchema, ensureTables, tablesSql } from '../tables/tables.ts'
import { guardTables } from './layout.ts'
import { FENCE_SETTING } from './statements.ts'

export interface TableFenceOptions {
  /** `table` or `schema.table`. An ordinary table without partitions and child tables; it may itself be a partition. */
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
  /** The statements that `install` runs, for users who apply migrations themselves. They can be run again. */
  readonly installSql: string
  readonly removeSql: string
  /**
   * In one transaction. Waits for open writes to the table. Refuses, with UNSUPPORTED, a table with partitions or child tables,
   * and one that has a fence with other options.
   */
  install(client: PostgresClient): Promise<void>
  /** Removes the triggers with these options, and no others. What the guard remembers stays. */
  remove(client: PostgresClient): Promise<void>
}

export function tableFence(options: TableFenceOptions): TableFence {
  if (options === undefined) throw new InvalidArgumentError('tableFence options', 'must be given.')
  checkKnownOptions('tableFence options', options, ['table', 'name', 'column', 'guard', 'issuers', 'schema'])
  const table = quoteTable('table', options.table)
  const schema = checkSchema(options.schema)
  const { column } = options
  const fence = fenceOf(schema, options)
  const trigger = (name: string, when: string, level: string) =>
    `CREATE TRIGGER ${name} ${when} ON ${table} FOR EACH ${level} ${fence.call};`
  const install = [
    refuseTable(table, fence),
    ...(column === undefined ? [] : [refuseColumn(table, column)]),
    drop(table, fence),
    trigger('holdfast_fence', 'BEFORE INSERT OR UPDATE OR DELETE', 'ROW'),
    // Another trigger may have moved the row to another key.
    ...(column === undefined ? [] : [trigger('holdfast_fence_after', 'AFTER INSERT OR UPDATE', 'ROW')]),
    trigger('holdfast_fence_truncate', 'BEFORE TRUNCATE', 'STATEMENT'),
  ]
  const remove = drop(table, fence)
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

/** SQLSTATE of our own refusals to install. */
const REFUSED = 'HF110'

function inTransaction(client: PostgresClient, body: (tx: SqlRunner) => Promise<unknown>): Promise<void> {
  return typedStep(async () => {
    try {
      await sharedDatabase(client).transaction(async (tx) => {
        await tx.query("SELECT set_config('client_min_messages', 'warning', true)")
        await body(tx)
      })
    } catch (error) {
      if (serverStateOf(error) !== REFUSED) throw error
      throw new UnsupportedError(`postgres: ${(error as Error).message}`, { cause: error })
    }
  })
}

/**
 * Refuses a table whose rows are in others: a write to a parent changes the rows of its children without asking its triggers.
 * Refuses one that has another fence, which would be lost, and one whose writes the function would refuse.
 */
function refuseTable(table: string, { functionOid, isThis }: Fenced): string {
  const refuse = (what: string, values: string) =>
    `RAISE EXCEPTION '${what}', ${values} USING ERRCODE = '${REFUSED}';`
  return `DO ${literal(`DECLARE
  fenced CONSTANT regclass := ${literal(table)};
  call text;
  the_owner oid;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = fenced AND relkind = 'r')
    OR EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = fenced) THEN
    ${refuse('% is not a table, or has partitions or child tables. Fence each of its partitions, with the same name', 'fenced')}
  END IF;
  SELECT substring(pg_catalog.pg_get_triggerdef(t.oid) FROM 'EXECUTE FUNCTION (.*)') INTO call
  FROM pg_catalog.pg_trigger t WHERE t.tgrelid = fenced AND ${IS_FENCE} AND (${isThis}) IS NOT TRUE LIMIT 1;
  IF FOUND THEN
    ${refuse('the table % has another fence: %. Remove that first, with the options with which it was installed', 'fenced, call')}
  END IF;
  SELECT relowner INTO the_owner FROM pg_catalog.pg_class WHERE oid = fenced;
  IF NOT pg_catalog.has_function_privilege(the_owner, ${functionOid}, 'EXECUTE') THEN
    ${refuse('%, the owner of the table %, may not use the function %. Grant EXECUTE on it to the owner', `the_owner::regrole, fenced, ${functionOid}::regprocedure`)}
  END IF;
END`)};`
}

/** Drops the triggers of this fence, and of no other. */
function drop(table: string, { isThis }: Fenced): string {
  return `DO ${literal(`DECLARE
  fenced CONSTANT regclass := pg_catalog.to_regclass(${literal(table)});
  name text;
BEGIN
  FOR name IN SELECT t.tgname FROM pg_catalog.pg_trigger t WHERE t.tgrelid = fenced AND ${IS_FENCE} AND ${isThis} LOOP
    EXECUTE pg_catalog.format('DROP TRIGGER %I ON %s', name, fenced);
  END LOOP;
END`)};`
}

/** Types in which equal values have one text, in every session: a row has one name. */
const KEY_TYPES = ['smallint', 'integer', 'bigint', 'uuid', 'text', 'character varying', 'date', 'boolean']

function refuseColumn(table: string, column: string): string {
  const types = KEY_TYPES.map((type) => `'${type}'::regtype`).join(', ')
  const name = literal(column)
  return `DO ${literal(`BEGIN
  PERFORM FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation,
    LATERAL (SELECT coalesce(nullif(t.typbasetype, 0), t.oid) AS base,
      CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END >= 0 AS has_length) AS key
  WHERE a.attrelid = ${literal(table)}::regclass AND a.attname = ${name} AND NOT a.attisdropped AND a.attgenerated = ''
    AND coalesce(c.collisdeterministic, true)
    AND (base IN (${types}) OR t.typtype = 'e'
      OR (base IN ('numeric'::regtype, 'character'::regtype) AND has_length));
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the column % cannot be the key of a fence. It must exist and not be generated, and values that are equal must have one text: an integer, a text, a uuid, a numeric with a scale',
      ${name} USING ERRCODE = '${REFUSED}';
  END IF;
END`)};`
}

/** A fence as its triggers have it. */
interface Fenced {
  /** The statement that they execute. */
  readonly call: string
  /** SQL: the function's oid; null if it does not exist. */
  readonly functionOid: string
  /** SQL: whether the trigger `t` is one of this fence. */
  readonly isThis: string
}

/** SQL: whether the trigger `t` is one of any fence. */
const IS_FENCE = "starts_with(t.tgname::text, 'holdfast_fence')"

function fenceOf(schema: string, options: TableFenceOptions): Fenced {
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
  const texts = parameters.map(literal).join(', ')
  // By its name in the catalogue: taking a fence away needs no right to use the schema.
  const functionOid = `(SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = ${literal(schema)} AND p.proname = 'fence_row' AND p.pronargs = 0)`
  return {
    call: `EXECUTE FUNCTION ${quoteIdentifier(schema)}.fence_row(${texts})`,
    functionOid,
    // The server keeps the arguments of a trigger as bytes, with a zero after each.
    isThis: `t.tgfoid = ${functionOid} AND t.tgargs = (
      SELECT string_agg(convert_to(argument, getdatabaseencoding()) || decode('00', 'hex'), ''::bytea ORDER BY place)
      FROM unnest(ARRAY[${texts}]) WITH ORDINALITY AS a (argument, place))`,
  }
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
  // Which tables are fenced, and by which guards, only the database knows.
  assertHeld(proofs, 'table-fence')
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
