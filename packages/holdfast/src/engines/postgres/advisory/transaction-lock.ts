/**
 * Advisory locks that end with a transaction of the user's own. They need nothing that outlives the transaction, so they
 * are safe behind every pooler. They have the keys of the backend's session locks, and the two exclude each other.
 */
import { defaults } from '../../../base/defaults.ts'
import { AcquireTimeoutError } from '../../../base/errors.ts'
import { checkName, checkNamespace } from '../../../base/names.ts'
import { checkKnownOptions, checkNumber, checkOneOf } from '../../../base/options.ts'
import {
  insistOnTransaction,
  type SqlTransaction,
  serverStateOf,
  sqlRunnerOf,
  TRANSACTION_ID,
} from '../client/index.ts'
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
const NO_TRANSACTION =
  'is not in a transaction: the lock has ended with the statement that took it. Begin one first.'

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
  const lock = async () => {
    const text = `SELECT pg_advisory_xact_lock${shared}(${key})::text, ${TRANSACTION_ID}`
    const [row] = await runner.query(text, [parameter])
    await insistOnTransaction(runner, row?.[1], NO_TRANSACTION)
  }
  if (waitMs === undefined) return lock()
  // 0 would mean for ever.
  const limitMs = Math.max(1, Math.round(checkNumber('waitMs', waitMs, { min: 0, max: 2 ** 31 - 1 })))
  const [before] = await runner.query(
    `SELECT current_setting('lock_timeout'), set_config('lock_timeout', $1, true)`,
    [String(limitMs)],
  )
  try {
    await lock()
  } catch (error) {
    if (serverStateOf(error) !== LOCK_NOT_AVAILABLE) throw error
    const advice = 'The transaction has failed with it: roll it back, and begin another one to try again.'
    throw new AcquireTimeoutError(name, waitMs, advice)
  }
  await runner.query(`SELECT set_config('lock_timeout', $1, true)`, [String(before?.[0])])
}

/** Takes the lock if it is free, until the transaction ends. False: it is taken, and nothing has happened. */
export async function tryTransactionLock(
  tx: SqlTransaction,
  name: string,
  options: TransactionLockOptions = {},
): Promise<boolean> {
  checkKnownOptions('options', options, ['namespace', 'key', 'mode'])
  const { shared, key, parameter } = checked(name, options)
  const runner = sqlRunnerOf(tx)
  const lock = `SELECT pg_try_advisory_xact_lock${shared}(${key})::text, ${TRANSACTION_ID}`
  const [row] = await runner.query(lock, [parameter])
  if (row?.[0] !== 'true') return false
  await insistOnTransaction(runner, row[1], NO_TRANSACTION)
  return true
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
