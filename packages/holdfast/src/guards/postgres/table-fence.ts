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

import { limits } from '../../base/defaults.ts'
import { InvalidArgumentError, UnsupportedError } from '../../base/errors.ts'
import { fenceText } from '../../base/fence.ts'
import { checkName, checkText } from '../../base/names.ts'
import { checkKnownOptions } from '../../base/options.ts'
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
  /** What `install` runs, for users who apply migrations themselves. It can be run again. */
  readonly installSql: string
  readonly removeSql: string
  /**
   * In one transaction. Waits for open writes to the table. Run it again after adding partitions or child tables. Refuses,
   * with UNSUPPORTED, if one of the tables has a fence with other options.
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
  const install = [
    refuseTables(table, fence),
    ...(column === undefined ? [] : [refuseColumn(table, column)]),
    drop(table, fence),
    create(table, fence, column !== undefined),
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
 * The table and all that inherit from it now: a write to a parent changes the rows of its children without asking the
 * triggers of the parent, and TRUNCATE of a partition asks only those of the partition.
 */
function treeOf(root: string): string {
  return `WITH RECURSIVE tree (relid, depth) AS (
      SELECT ${root}::oid, 0
      UNION SELECT i.inhrelid, depth + 1 FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.relid)`
}

/** Refuses tables that have another fence, which would be lost, and tables whose writes the function would refuse. */
function refuseTables(table: string, { functionOid, isThis }: Fenced): string {
  const tree = treeOf(`${literal(table)}::regclass`)
  return `DO ${literal(`DECLARE
  wrong record;
BEGIN
  ${tree}
  SELECT t.tgrelid::regclass AS fenced, substring(pg_catalog.pg_get_triggerdef(t.oid) FROM 'EXECUTE FUNCTION (.*)') AS call
  INTO wrong FROM tree JOIN pg_catalog.pg_trigger t ON t.tgrelid = relid
  WHERE ${IS_FENCE} AND (${isThis}) IS NOT TRUE LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'the table % has another fence: %. Remove that first, with the options with which it was installed',
      wrong.fenced, wrong.call USING ERRCODE = '${REFUSED}';
  END IF;
  ${tree}
  SELECT c.oid::regclass AS fenced, c.relowner::regrole AS owner, ${functionOid}::regprocedure AS call
  INTO wrong FROM tree JOIN pg_catalog.pg_class c ON c.oid = relid
  WHERE NOT pg_catalog.has_function_privilege(c.relowner, ${functionOid}, 'EXECUTE') LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION '%, the owner of the table %, may not use the function %. Grant EXECUTE on it to the owner',
      wrong.owner, wrong.fenced, wrong.call USING ERRCODE = '${REFUSED}';
  END IF;
END`)};`
}

/** Drops the triggers of this fence, and of no other. Those that a partition has from its table go with the table's. */
function drop(table: string, { isThis }: Fenced): string {
  return `DO ${literal(`DECLARE
  fenced oid;
  name text;
BEGIN
  FOR fenced, name IN
    ${treeOf(`pg_catalog.to_regclass(${literal(table)})`)}
    SELECT t.tgrelid, t.tgname FROM tree JOIN pg_catalog.pg_trigger t ON t.tgrelid = relid
    WHERE ${IS_FENCE} AND t.tgparentid = 0 AND ${isThis} GROUP BY t.tgrelid, t.tgname ORDER BY min(depth)
  LOOP
    EXECUTE pg_catalog.format('DROP TRIGGER %I ON %s', name, fenced::regclass);
  END LOOP;
END`)};`
}

function create(table: string, { call }: Fenced, byRow: boolean): string {
  const execute = (condition: string, name: string, when: string, level: string) => {
    const text = `CREATE TRIGGER ${name} ${when} ON %s FOR EACH ${level} ${call.replaceAll('%', '%%')}`
    return `    IF ${condition} THEN EXECUTE pg_catalog.format(${literal(text)}, fenced::regclass); END IF;`
  }
  // The server copies row triggers to partitions, so the table also has one where all its rows have one name.
  const isNotCopied = 'NOT is_partition'
  // Before PostgreSQL 16 a foreign table cannot have a TRUNCATE trigger.
  const canTruncate = "kind <> 'f' OR current_setting('server_version_num')::int >= 160000"
  return `DO ${literal(`DECLARE
  fenced oid;
  is_partition boolean;
  kind "char";
BEGIN
  FOR fenced, is_partition, kind IN
    ${treeOf(`${literal(table)}::regclass`)}
    SELECT c.oid, bool_or(c.relispartition AND depth > 0), c.relkind FROM tree JOIN pg_catalog.pg_class c ON c.oid = relid
    GROUP BY c.oid, c.relkind ORDER BY min(depth)
  LOOP
${[
  execute(isNotCopied, 'holdfast_fence', 'BEFORE INSERT OR UPDATE OR DELETE', 'ROW'),
  ...(byRow ? [execute(isNotCopied, 'holdfast_fence_after', 'AFTER INSERT OR UPDATE', 'ROW')] : []),
  execute(canTruncate, 'holdfast_fence_truncate', 'BEFORE TRUNCATE', 'STATEMENT'),
].join('\n')}
  END LOOP;
END`)};`
}

/** In these types, values that are equal have one text, in every session: a row has one name. */
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
  /** What they execute. */
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
