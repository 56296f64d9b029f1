/**
 * One transaction of `run`, from its beginning to its end.
 *
 *   (none) ──BEGIN──▶ open ──pass: the fences are judged and remembered──▶ entered ──effect, COMMIT──▶ (none)
 *                     open | entered ──anything thrown, ROLLBACK or the end of the connection──▶ (none)
 *
 * What may go wrong between its steps:
 *   called off before the effect has begun: the run rejects at once. A statement that waits for a row cannot be taken
 *     back, so the connection is given up, or rolls back as soon as it has its answer; the effect does not begin. Until
 *     then the transaction is not over (`isOver`): others for the name must not take one connection after the other.
 *   called off later: the effect is awaited, and then rolled back.
 *   the effect ends the transaction, or swallows an error that has ended it: then COMMIT would succeed and mean nothing.
 *     So the transaction is asked who it is before it is committed.
 *   the connection ends after COMMIT was sent, or the run is called off before it is answered: unknown, and said so.
 */
import {
  conflictOf,
  type NativeTransaction,
  type PostgresDatabase,
  type SqlRunner,
  serverStateOf,
  type TransactionOptions,
  typedStep,
} from '../../clients/postgres/index.ts'
import { BackendUnavailableError, InvalidArgumentError, isHoldfastError } from '../../core/errors.ts'
import type { Passed } from './store.ts'

export interface TransactionTerms {
  readonly database: PostgresDatabase
  readonly isolation: TransactionOptions['isolation'] | undefined
  readonly signal: AbortSignal | undefined
  readonly sameTransaction: string
}

export interface Transaction<T> {
  /** What the caller is told. */
  readonly told: Promise<T>
  /**
   * When its connection is free again. Never rejects. A commit that is called off before it is answered is left to itself:
   * nobody can tell how long its answer takes.
   */
  readonly isOver: Promise<void>
}

export function transact<T>(
  terms: TransactionTerms,
  pass: (runner: SqlRunner) => Promise<Passed>,
  effect: (runner: SqlRunner, native: NativeTransaction) => Promise<T>,
): Transaction<T> {
  const { database, isolation, signal } = terms
  let failedEffect: { readonly error: unknown } | undefined
  let begun = false
  let committing = false
  const work = async (runner: SqlRunner, native: NativeTransaction): Promise<T> => {
    const { transaction } = await typedStep(() => pass(runner))
    signal?.throwIfAborted()
    begun = true
    let result: T
    try {
      result = await effect(runner, native)
    } catch (error) {
      failedEffect = { error }
      throw error
    }
    signal?.throwIfAborted()
    await assertSameTransaction(runner, terms.sameTransaction, transaction)
    signal?.throwIfAborted()
    committing = true
    return result
  }
  const whenCalledOff = (): unknown => {
    if (!begun) return signal?.reason
    if (!committing) return undefined
    const cause = signal?.reason
    return new BackendUnavailableError('postgres', 'called off before the commit was answered', 'unknown', {
      cause,
    })
  }
  const done = database.transaction(work, isolation === undefined ? {} : { isolation })
  const tell = async (): Promise<T> => {
    try {
      return await unlessCalledOff(done, signal, whenCalledOff)
    } catch (error) {
      if (signal?.aborted && !begun) throw signal.reason
      // What an effect throws is passed on as it is, but for the server's word that all of it is to be done again.
      if (failedEffect !== undefined) throw conflictOf(failedEffect.error) ?? failedEffect.error
      throw conflictOf(error) ?? constraintIn(error) ?? error
    }
  }
  const told = tell()
  const end = async (): Promise<void> => {
    await Promise.allSettled([told])
    if (!committing) await Promise.allSettled([done])
  }
  return { told, isOver: end() }
}

async function assertSameTransaction(runner: SqlRunner, sql: string, transaction: string): Promise<void> {
  try {
    const [row] = await runner.query(sql, [transaction])
    if (row?.[0] === 'true') return
  } catch (error) {
    if (serverStateOf(error) !== IN_FAILED_TRANSACTION) throw error
    throw new InvalidArgumentError(
      'effect',
      'must not go on after an error of the database, which has undone the transaction: let it out, or use a savepoint.',
      { cause: error },
    )
  }
  throw new InvalidArgumentError(
    'effect',
    'must not end the transaction that it runs in: it was committed or rolled back before the effect returned, so what ' +
      'came after was not guarded.',
  )
}

const IN_FAILED_TRANSACTION = '25P02'

/** A constraint that is checked at the commit is the effect's own mistake, and comes out as it is. */
function constraintIn(error: unknown): unknown {
  return isHoldfastError(error, 'BACKEND_UNAVAILABLE') && serverStateOf(error)?.startsWith('23')
    ? error.cause
    : undefined
}

/** Settles with `work`, or rejects as soon as the signal aborts, if there is an error for that; `work` is left to itself then. */
function unlessCalledOff<T>(
  work: Promise<T>,
  signal: AbortSignal | undefined,
  errorFor: () => unknown,
): Promise<T> {
  if (signal === undefined) return work
  return new Promise<T>((resolve, reject) => {
    const onAbort = () => {
      const error = errorFor()
      if (error !== undefined) reject(error)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}
