/**
 * Advisory locks that end with a transaction of the user's own. They need nothing that outlives the transaction, so they
 * are safe behind every pooler; they exclude with the session locks of the backend, by the same keys.
 *
 * What may go wrong: outside of a transaction the lock ends with the statement that takes it, and protects nothing. So a
 * second statement looks whether it is there still; behind a pooler it may even reach another session.
 */

import { defaults } from '../../base/defaults.ts'
import { AcquireTimeoutError, InvalidArgumentError } from '../../base/errors.ts'
import { checkName, checkNamespace } from '../../base/names.ts'
import { checkKnownOptions, checkNumber, checkOneOf } from '../../base/options.ts'
import { type SqlRunner, type SqlTransaction, sqlRunnerOf, sqlStateOf } from '../../clients/postgres/index.ts'
import { checkedKey, checkKeyChoice, defaultKey, type KeyChoice } from './keys.ts'

export interface TransactionLockOptions {
  /** As for the backend, whose locks it excludes with. */
  readonly namespace?: string
  readonly key?: KeyChoice
  /** Default: `exclusive`. */
  readonly mode?: 'exclusive' | 'shared'
}

export interface WaitingTransactionLockOptions extends TransactionLockOptions {
  /** By default it waits for as long as the settings of the transaction allow (`lock_timeout`). */
  readonly waitMs?: number
}

const LOCK_NOT_AVAILABLE = '55P03'

/** Waits for the lock, which is held until the transaction ends. When `waitMs` is over, the transaction has failed. */
export async function withTransactionLock(
  tx: SqlTransaction,
  name: string,
  options: WaitingTransactionLockOptions = {},
): Promise<void> {
  checkKnownOptions('options', options, ['namespace', 'key', 'mode', 'waitMs'])
  const { waitMs, ...rest } = options
  const { shared, key, parameter } = checked(name, rest)
  const runner = sqlRunnerOf(tx)
  const lock = `SELECT pg_advisory_xact_lock${shared}(${key})::text`
  if (waitMs === undefined) {
    await runner.query(lock, [parameter])
    await insistOnTransaction(runner, key, parameter)
    return
  }
  // 0 would mean for ever.
  const limitMs = Math.max(1, Math.round(checkNumber('waitMs', waitMs, { min: 0, max: 2 ** 31 - 1 })))
  const [before] = await runner.query(
    `SELECT current_setting('lock_timeout'), set_config('lock_timeout', $1, true)`,
    [String(limitMs)],
  )
  try {
    await runner.query(lock, [parameter])
  } catch (error) {
    if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error
    const advice = 'The transaction has failed with it: roll it back, and begin another one to try again.'
    throw new AcquireTimeoutError(name, waitMs, advice)
  }
  await insistOnTransaction(runner, key, parameter)
  await runner.query(`SELECT set_config('lock_timeout', $1, true)`, [String(before?.[0])])
}

/** Takes the lock if it is free, until the transaction ends. False: somebody else has it, and nothing has happened. */
export async function tryTransactionLock(
  tx: SqlTransaction,
  name: string,
  options: TransactionLockOptions = {},
): Promise<boolean> {
  checkKnownOptions('options', options, ['namespace', 'key', 'mode'])
  const { shared, key, parameter } = checked(name, options)
  const runner = sqlRunnerOf(tx)
  const lock = `SELECT pg_try_advisory_xact_lock${shared}(${key})::text`
  const [row] = await runner.query(lock, [parameter])
  if (row?.[0] !== 'true') return false
  await insistOnTransaction(runner, key, parameter)
  return true
}

async function insistOnTransaction(runner: SqlRunner, key: string, parameter: string): Promise<void> {
  const [held] = await runner.query(
    `SELECT 1 FROM pg_catalog.pg_locks
    WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objsubid = 1 AND granted
      AND (classid::bigint << 32) | objid::bigint = ${key}`,
    [parameter],
  )
  if (held === undefined)
    throw new InvalidArgumentError(
      'tx',
      'is not in a transaction: the lock has ended with the statement that took it. Begin one first.',
    )
}

function checked(name: string, options: TransactionLockOptions) {
  checkName(name)
  const namespace = checkNamespace(options.namespace ?? defaults.namespace)
  const mode = checkOneOf('mode', options.mode ?? 'exclusive', ['exclusive', 'shared'])
  const shared = mode === 'shared' ? '_shared' : ''
  const choice = checkKeyChoice(options.key)
  if (choice === 'hashtext') return { shared, key: 'hashtext($1::text)::bigint', parameter: name }
  const key = choice === undefined ? defaultKey(namespace, name) : checkedKey(choice(name))
  return { shared, key: '$1::text::bigint', parameter: key.toString() }
}

/** Query builders may wrap what the client throws. */
function codeOf(error: unknown): string | null {
  return (
    sqlStateOf(error) ?? (error instanceof Error && error.cause !== undefined ? codeOf(error.cause) : null)
  )
}
