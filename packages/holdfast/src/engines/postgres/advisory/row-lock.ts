/**
 * Locks on rows of the user's own tables, in a transaction of theirs. The database itself holds every writer of the row to it.
 *
 * `NOWAIT` as PostgreSQL has it fails, and an error ends the whole transaction. So `nowait` asks for what is not locked,
 * and, if there is nothing, whether the row exists: the answer is the same, and the transaction goes on.
 */
import { InvalidArgumentError } from '../../../base/errors.ts'
import { checkKnownOptions, checkOneOf } from '../../../base/options.ts'
import {
  checkIdentifier,
  insistOnTransaction,
  quoteIdentifier,
  quoteTable,
  type SqlTransaction,
  sqlRunnerOf,
  TRANSACTION_ID,
} from '../client/index.ts'

export type RowLockStrength = 'update' | 'no key update' | 'share' | 'key share'

/** `wait`: until it is free. `nowait`: say that it is busy. `skip`: as if it were not there. */
export type IfLocked = 'wait' | 'nowait' | 'skip'

export interface RowLockRequest<C extends string = never, W extends IfLocked = 'wait'> {
  /** `table` or `schema.table`. */
  readonly table: string
  /** Columns and what they must equal; `null` matches NULL. Together they must name one row: the first is taken. */
  readonly where: Readonly<Record<string, string | number | bigint | boolean | null>>
  /** Columns to read of the row. Default: none. */
  readonly columns?: readonly C[]
  /** Default: `update`. */
  readonly strength?: RowLockStrength
  /** Default: `wait`. */
  readonly ifLocked?: W
}

export type LockedRow<C extends string> = {
  readonly kind: 'locked'
  readonly row: { readonly [column in C]: unknown }
}

export type RowLock<C extends string, W extends IfLocked> =
  | LockedRow<C>
  | (W extends 'wait' ? { readonly kind: 'not-found' } : never)
  | (W extends 'nowait' ? { readonly kind: 'not-found' } | { readonly kind: 'busy' } : never)
  /** The row is not there, or locked by another: this way does not tell. */
  | (W extends 'skip' ? { readonly kind: 'skipped' } : never)

/** Locks one row until the transaction ends, and reads it as it is then. */
export async function lockRow<const C extends string = never, const W extends IfLocked = 'wait'>(
  tx: SqlTransaction,
  request: RowLockRequest<C, W>,
): Promise<RowLock<C, W>> {
  checkKnownOptions('request', request, ['table', 'where', 'columns', 'strength', 'ifLocked'])
  const { columns = [], where } = request
  const strength = checkOneOf('strength', request.strength ?? 'update', [
    'update',
    'no key update',
    'share',
    'key share',
  ])
  const ifLocked = checkOneOf<IfLocked>('ifLocked', request.ifLocked ?? 'wait', ['wait', 'nowait', 'skip'])
  const table = quoteTable('table', request.table)
  const { condition, parameters } = conditionOf(where)
  const list = columns.map((column) => quoteIdentifier(checkIdentifier('columns', column)))
  const runner = sqlRunnerOf(tx)
  const locking = `FOR ${strength.toUpperCase()}${ifLocked === 'wait' ? '' : ' SKIP LOCKED'}`
  const [found] = await runner.query(
    `SELECT ${[TRANSACTION_ID, ...list].join(', ')} FROM ${table} WHERE ${condition} LIMIT 1 ${locking}`,
    parameters,
  )
  if (found !== undefined) {
    const otherwise =
      'is not in a transaction: the lock on the row has ended with the statement that took it. Begin one first.'
    await insistOnTransaction(runner, found[0], otherwise)
    const row = Object.fromEntries(columns.map((column, index) => [column, found[index + 1]]))
    return { kind: 'locked', row } as RowLock<C, W>
  }
  if (ifLocked === 'skip') return { kind: 'skipped' } as RowLock<C, W>
  if (ifLocked === 'wait') return { kind: 'not-found' } as RowLock<C, W>
  const [exists] = await runner.query(`SELECT 1 FROM ${table} WHERE ${condition} LIMIT 1`, parameters)
  return { kind: exists === undefined ? 'not-found' : 'busy' } as RowLock<C, W>
}

function conditionOf(where: RowLockRequest['where']) {
  const entries = Object.entries(where ?? {})
  if (entries.length === 0)
    throw new InvalidArgumentError('where', 'must name at least one column: a lock is for one row.')
  const parameters: (string | number | boolean)[] = []
  const condition = entries.map(([column, value]) => {
    const quoted = quoteIdentifier(checkIdentifier('where', column))
    if (value === null) return `${quoted} IS NULL`
    if (!['string', 'number', 'bigint', 'boolean'].includes(typeof value))
      throw new InvalidArgumentError('where', 'must compare with text, numbers, true, false or null.')
    parameters.push(typeof value === 'bigint' ? value.toString() : value)
    return `${quoted} = $${parameters.length}`
  })
  return { condition: condition.join(' AND '), parameters }
}
