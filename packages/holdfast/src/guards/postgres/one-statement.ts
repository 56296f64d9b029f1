/**
 * The one-statement forms, for a table of your own that has a column for the token: the row itself remembers.
 *
 * ```sql
 * UPDATE accounts SET balance = $2, owner_token = $1 WHERE id = $3 AND coalesce(owner_token, 0) <= $1
 * ```
 *
 * `<=` lets one holder write as often as it likes. `<` is `once`: a token is good for one write, and a repetition after
 * a lost answer changes nothing. The statement is one step by itself, at every isolation level; it needs no other table.
 *
 * What it does not know: the issuer (raise the epoch when you move, so that numbers stay comparable), the grant (two
 * holders with one token both pass `<=`, T68), and rows that were deleted. And it sees the writes of its row only. A read
 * that counts must leave its token as well: `fencedRead`.
 */

import { FenceStaleError, InvalidArgumentError, quote } from '../../base/errors.ts'
import type { Fence } from '../../base/fence.ts'
import { checkKnownOptions } from '../../base/options.ts'
import {
  checkIdentifier,
  type Parameter,
  quoteIdentifier,
  quoteTable,
  refusedByTable,
  type SqlTransaction,
  sqlRunnerOf,
  typedStep,
} from '../../clients/postgres/index.ts'
import type { Proof } from '../guard.ts'
import { assertHeld, checkProofs } from '../proofs.ts'

/** Column names and their values. */
export type ColumnValues = Readonly<Record<string, Parameter>>

/** Which row, and which of its columns. */
export interface FencedRow {
  /** `table` or `schema.table`. */
  readonly table: string
  /** The columns that say which row. */
  readonly key: ColumnValues
  /** A bigint column of the table. Default `owner_token`. Null counts as never written. */
  readonly tokenColumn?: string
  /** Columns to answer with. */
  readonly returning?: readonly string[]
}

export interface FencedUpdate extends FencedRow {
  readonly set: ColumnValues
  /** `<` instead of `<=`: at most one write for one token. */
  readonly once?: boolean
}

/** The key's columns must have a unique index. */
export interface FencedUpsert extends FencedUpdate {}

export interface FencedStatement {
  readonly text: string
  /** The token is the first of them, as decimal text. */
  readonly values: readonly Parameter[]
  readonly fence: Fence
  /** How to look what stands there, when no row was changed. */
  readonly look: { readonly text: string; readonly values: readonly Parameter[] }
}

/** Changes the row unless a newer holder has. No row changed: it was refused, or there is no such row. */
export function fencedUpdate(proof: Proof, update: FencedUpdate): FencedStatement {
  const parts = checkRow(proof, update, ['set', 'once'])
  const { table, token, key, keyValues } = parts
  const sets = checkColumns('set', update.set, token)
  const values = [parts.tokenText, ...keyValues, ...sets.values]
  const assigned = sets.names.map((name, at) => `${name} = $${keyValues.length + 2 + at}`)
  const where = key.map((name, at) => `${name} = $${at + 2}`)
  const text =
    `UPDATE ${table} SET ${[...assigned, `${token} = $1::bigint`].join(', ')} ` +
    `WHERE ${where.join(' AND ')} AND coalesce(${token}, 0) ${operatorOf(update.once)} $1::bigint` +
    ` RETURNING ${parts.returning.join(', ')}`
  return { text, values, fence: parts.fence, look: lookAt(parts) }
}

/** Leaves the token and answers with the row, unless a newer holder has been there: a read that counts. */
export function fencedRead(
  proof: Proof,
  read: FencedRow & { readonly returning: readonly string[] },
): FencedStatement {
  return fencedUpdate(proof, { ...read, set: {} })
}

/** Writes the row, new or not, unless a newer holder has. No row: it was refused. */
export function fencedUpsert(proof: Proof, upsert: FencedUpsert): FencedStatement {
  const parts = checkRow(proof, upsert, ['set', 'once'])
  const { table, token, key, keyValues } = parts
  const sets = checkColumns('set', upsert.set, token)
  const values = [parts.tokenText, ...keyValues, ...sets.values]
  const columns = [token, ...key, ...sets.names]
  const parameters = columns.map((_, at) => (at === 0 ? '$1::bigint' : `$${at + 1}`))
  const assigned = [token, ...sets.names].map((name) => `${name} = excluded.${name}`)
  const text =
    `INSERT INTO ${table} AS t (${columns.join(', ')}) VALUES (${parameters.join(', ')}) ` +
    `ON CONFLICT (${key.join(', ')}) DO UPDATE SET ${assigned.join(', ')} ` +
    `WHERE coalesce(t.${token}, 0) ${operatorOf(upsert.once)} excluded.${token}` +
    ` RETURNING ${parts.returning.map((name) => `t.${name}`).join(', ')}`
  return { text, values, fence: parts.fence, look: lookAt(parts) }
}

/**
 * Runs such a statement in a transaction or on a connection of yours. The columns of `returning`, in their order, or
 * the token alone if there are none; null if there is no such row.
 *
 * @throws FenceStaleError   the row has a newer token, or this one and `once`
 */
export async function applyFenced(
  tx: SqlTransaction,
  statement: FencedStatement,
): Promise<readonly unknown[] | null> {
  const runner = sqlRunnerOf(tx)
  const step = async () => {
    const [row] = await runner.query(statement.text, statement.values)
    if (row !== undefined) return row
    // Nothing was changed, and what is found now cannot make it so: it only tells refusal from absence.
    const [found] = await runner.query(statement.look.text, statement.look.values)
    if (found === undefined) return null
    const highest = BigInt(String(found[0] ?? 0))
    throw new FenceStaleError(
      statement.fence,
      highest,
      highest === statement.fence.token ? 'it has been used before and may be used once only' : undefined,
    )
  }
  try {
    return await typedStep(step)
  } catch (error) {
    throw refusedByTable(error, 'statement') ?? error
  }
}

interface CheckedRow {
  readonly fence: Fence
  readonly tokenText: string
  readonly table: string
  readonly token: string
  readonly key: readonly string[]
  readonly keyValues: readonly Parameter[]
  readonly returning: readonly string[]
}

function checkRow(proof: Proof, row: FencedRow, more: readonly string[]): CheckedRow {
  if (Array.isArray(proof)) throw new InvalidArgumentError('proof', 'must be one: the row has one token.')
  const proofs = checkProofs(proof, false)
  if (proofs[0]?.fence.mode === 'shared')
    throw new InvalidArgumentError('proof', 'must be exclusive: of shared holders the older may come later.')
  assertHeld(proofs)
  if (row === undefined) throw new InvalidArgumentError('row', 'must be given.')
  checkKnownOptions('row', row, ['table', 'key', 'tokenColumn', 'returning', ...more])
  const { fence } = proofs[0] as { fence: Fence }
  const token = quoteIdentifier(checkIdentifier('tokenColumn', row.tokenColumn ?? 'owner_token'))
  const key = checkColumns('key', row.key, token)
  if (key.names.length === 0) throw new InvalidArgumentError('key', 'must name at least one column.')
  const returning = (row.returning ?? []).map((name) => quoteIdentifier(checkIdentifier('returning', name)))
  return {
    fence,
    tokenText: String(fence.token),
    table: quoteTable('table', row.table),
    token,
    key: key.names,
    keyValues: key.values,
    returning: returning.length === 0 ? [token] : returning,
  }
}

function checkColumns(
  argument: string,
  columns: ColumnValues,
  token: string,
): { names: readonly string[]; values: readonly Parameter[] } {
  if (typeof columns !== 'object' || columns === null || Array.isArray(columns))
    throw new InvalidArgumentError(argument, 'must be an object: column names and their values.')
  const names = Object.entries(columns).map(([name, value]) => {
    if (value === undefined)
      throw new InvalidArgumentError(argument, `must have a value for ${quote(name)}: null for none.`)
    return quoteIdentifier(checkIdentifier(argument, name))
  })
  if (names.includes(token))
    throw new InvalidArgumentError(argument, 'must not name the column of the token.')
  return { names, values: Object.values(columns) }
}

function operatorOf(once: unknown): '<' | '<=' {
  if (once !== undefined && typeof once !== 'boolean')
    throw new InvalidArgumentError('once', 'must be true or false.')
  return once ? '<' : '<='
}

function lookAt({ table, token, key, keyValues }: CheckedRow): FencedStatement['look'] {
  const where = key.map((name, at) => `${name} = $${at + 1}`).join(' AND ')
  return { text: `SELECT ${token}::text FROM ${table} WHERE ${where}`, values: keyValues }
}
