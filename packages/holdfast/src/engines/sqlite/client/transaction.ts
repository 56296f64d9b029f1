/**
 * One transaction, from its beginning to its certain end.
 *
 *   (none) ──BEGIN IMMEDIATE, waits while the file is busy──▶ open ──body returned, COMMIT──▶ (none)
 *                                                             open ──anything thrown, ROLLBACK──▶ (none)
 *
 * The file is locked for writing from the first moment on, so no other fence can come between check and commit.
 */

import { type Clock, sleep } from '../../../base/clock.ts'
import {
  BackendUnavailableError,
  type CallOutcome,
  type HoldfastError,
  InvalidArgumentError,
  isHoldfastError,
  quote,
  UnsupportedError,
} from '../../../base/errors.ts'
import { growingPauseMs } from '../../../base/pauses.ts'
import {
  fileOf,
  isBusy,
  isConstraintViolation,
  isInTransaction,
  remedyFor,
  type SqliteDatabase,
} from './client.ts'

const LONGEST_BUSY_MS = 5_000
const LONGEST_PAUSE_MS = 20
const WHEN_BUSY =
  'Another connection has a transaction open on the file: see to it that transactions are short and always ended, begin ' +
  'those that write with BEGIN IMMEDIATE, and try again'

export interface TransactionTerms {
  readonly database: SqliteDatabase
  readonly clock: Clock
  readonly signal: AbortSignal | undefined
  /** The subject of messages. */
  readonly who?: string
}

export async function transact<T>(terms: TransactionTerms, body: () => Promise<T>): Promise<T> {
  const { database, signal } = terms
  if (ownStep(database, () => isInTransaction(database)))
    throw new InvalidArgumentError('database', 'is inside a transaction already: use guard.enter in it.')
  await whileBusy(terms, () => database.exec('BEGIN IMMEDIATE'))
  try {
    ownStep(database, () => database.exec('SAVEPOINT holdfast_guard'))
    const result = await body()
    assertSameTransaction(database)
    signal?.throwIfAborted()
    await whileBusy(terms, () => database.exec('COMMIT'), 'unknown')
    return result
  } catch (error) {
    rollBack(database)
    throw error
  }
}

/** Our own use of the file: its failures are typed, whereas what an effect throws is passed on as it is. */
export function ownStep<T>(file: SqliteDatabase | string, step: () => T, who?: string): T {
  try {
    return step()
  } catch (error) {
    throw isHoldfastError(error) ? error : unavailable(file, error, 'not-applied', who)
  }
}

function unavailable(
  file: SqliteDatabase | string,
  error: unknown,
  outcome: CallOutcome,
  who = 'guard',
): HoldfastError {
  const where = quote(typeof file === 'string' ? file : fileOf(file) || 'a database in memory')
  const remedy = remedyFor(error)
  if (remedy !== undefined)
    return new UnsupportedError(`The ${who} cannot use ${where}: ${remedy}`, { cause: error })
  const message = error instanceof Error ? error.message : String(error)
  const detail = isBusy(error) ? `${message}. ${WHEN_BUSY}` : message
  return new BackendUnavailableError('sqlite', `${who} on ${where}: ${detail}`, outcome, { cause: error })
}

/**
 * Tries again in small steps while another connection has the file, without blocking the event loop. `outcome`: what
 * any other failure of the step means.
 */
export async function whileBusy<T>(
  terms: TransactionTerms,
  step: () => T,
  outcome: CallOutcome = 'not-applied',
): Promise<T> {
  const { database, clock, signal, who } = terms
  const startMs = clock.monotonicMs()
  for (let tries = 0; ; tries++) {
    try {
      return step()
    } catch (error) {
      // A refusal is an answer, and a constraint that is checked at the end is the effect's own mistake.
      if (isHoldfastError(error) || isConstraintViolation(error)) throw error
      if (!isBusy(error)) throw unavailable(database, error, outcome, who)
      // Busy means refused, so even a COMMIT that gives up here has not been applied: it is rolled back.
      if (clock.monotonicMs() - startMs >= LONGEST_BUSY_MS)
        throw unavailable(database, error, 'not-applied', who)
    }
    const pauseMs = growingPauseMs(tries, { firstMs: 1, longestMs: LONGEST_PAUSE_MS })
    await sleep(clock, pauseMs, { ...(signal !== undefined && { signal }), keepsProcessAlive: true })
  }
}

/** The savepoint is gone if the effect ended the transaction, even if it has begun another since. */
function assertSameTransaction(database: SqliteDatabase): void {
  try {
    database.exec('RELEASE holdfast_guard')
  } catch (cause) {
    throw new InvalidArgumentError(
      'effect',
      'must not end the transaction that it runs in. It was committed or rolled back before the effect returned ' +
        '(some errors, such as a full disk, make SQLite roll back), so what came after was not guarded.',
      { cause },
    )
  }
}

export function rollBack(database: SqliteDatabase): void {
  try {
    if (isInTransaction(database)) database.exec('ROLLBACK')
  } catch {
    // The effect has closed the connection, which rolls back; the error that led here says more than this one.
  }
}
