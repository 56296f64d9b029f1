/**
 * One transaction of `run`, from its beginning to its end.
 *
 *   (none) ──BEGIN──▶ open ──pass: the fences are judged and remembered──▶ entered ──effect, COMMIT──▶ (none)
 *                     open | entered ──anything thrown, ROLLBACK or the end of the connection──▶ (none)
 *
 *   Cancelled before the effect has begun: the run rejects at once. A statement that waits for a row cannot be taken back, so
 *     the transaction is over (`isOver`) when it was answered, or after a limited time: the connection may be dead.
 *   Cancelled later: the effect is awaited, and then rolled back. The answer to that is awaited for a limited time.
 *   A lease is lost before COMMIT is sent: the run rejects at once, and the transaction is undone although the effect may
 *     still run. A commit that was sent is awaited: only the server knows what became of it.
 *   The process is frozen: the server ends the transaction when it has been idle for too long (`maxIdleMs`).
 *   The effect ends the transaction, or swallows an error that has ended it: COMMIT would succeed and mean nothing, so the
 *     transaction's id is compared first.
 *   The connection ends after COMMIT was sent, or the run is cancelled before it is answered: unknown, and said so.
 */

import { onAborted } from '../../../base/aborting.ts'
import { Cancellation, unlessCancelled } from '../../../base/cancellation.ts'
import type { Clock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { BackendUnavailableError, InvalidArgumentError, isHoldfastError } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import { settledWithin } from '../../../base/within.ts'
import {
  conflictOf,
  type NativeTransaction,
  type PostgresDatabase,
  type SqlRunner,
  serverStateOf,
  type TransactionOptions,
  typedStep,
} from '../client/index.ts'
import type { LeaseEnd } from './lease-end.ts'
import type { Passed } from './store.ts'

export interface TransactionTerms {
  readonly database: PostgresDatabase
  readonly isolation: TransactionOptions['isolation'] | undefined
  readonly signal: AbortSignal | undefined
  readonly sameTransaction: string
  readonly clock: Clock
  readonly leaseEnd: LeaseEnd
  readonly maxIdleMs: number
}

export interface Transaction<T> {
  /** The promise that the caller gets. */
  readonly told: Promise<T>
  /**
   * When its connection is free again, or was not for `callTimeoutMs` after the caller was told. Never rejects. A commit
   * that is cancelled before it is answered is left to itself: its answer may take any time.
   */
  readonly isOver: Promise<void>
}

export function transact<T>(
  terms: TransactionTerms,
  pass: (runner: SqlRunner) => Promise<Passed>,
  effect: (runner: SqlRunner, native: NativeTransaction) => Promise<T>,
): Transaction<T> {
  const { database, isolation, signal, clock, leaseEnd, maxIdleMs } = terms
  let failedEffect: { readonly error: unknown } | undefined
  let phase: 'opening' | 'effect' | 'ending' | 'committing' = 'opening'
  /** The caller need not wait for the transaction any more. */
  const left = new Cancellation()
  /** For the statements before the effect. Those after it must not be cut off by it. */
  const opening = new AbortController()
  let isEndedWithLease = false
  /** Resolves when the work has settled, or has not for as long as one waits for an answer. */
  const over = () =>
    settledWithin(clock, defaults.callTimeoutMs, done, { keepsProcessAlive: true }).then(ignore, ignore)
  const cancel = () => {
    if (phase === 'opening') {
      opening.abort(signal?.reason)
      left.cancel(signal?.reason)
    } else if (phase === 'ending') {
      void over().then(() => left.cancel(signal?.reason))
    } else if (phase === 'committing') {
      const cause = signal?.reason
      const what = 'cancelled before the commit was answered'
      left.cancel(new BackendUnavailableError('postgres', what, 'unknown', { cause }))
    }
  }
  const endWithLease = () => {
    if (phase === 'committing') return
    isEndedWithLease = true
    const { reason } = leaseEnd.signal
    if (phase === 'opening') opening.abort(reason)
    left.cancel(reason)
  }
  const throwIfEnded = () => {
    signal?.throwIfAborted()
    leaseEnd.signal.throwIfAborted()
  }
  const work = async (runner: SqlRunner, native: NativeTransaction): Promise<T> => {
    const { transaction } = await typedStep(() => pass(runner))
    throwIfEnded()
    phase = 'effect'
    let result: T
    try {
      result = await effect(runner, native)
    } catch (error) {
      failedEffect = { error }
      throw error
    } finally {
      phase = 'ending'
      if (signal?.aborted) cancel()
    }
    throwIfEnded()
    await assertSameTransaction(runner, terms, transaction)
    throwIfEnded()
    phase = 'committing'
    return result
  }
  const done = database.transaction(work, {
    ...(isolation !== undefined && { isolation }),
    signal: opening.signal,
    until: leaseEnd.signal,
    maxIdleMs,
  })
  const stopListening = onAborted(signal, cancel)
  const stopWatching = onAborted(leaseEnd.signal, endWithLease)
  const tell = async (): Promise<T> => {
    try {
      return await unlessCancelled(done, left)
    } catch (error) {
      if (signal?.aborted && phase === 'opening') throw signal.reason
      // After a loss the caller gets LEASE_LOST, not the connection's error.
      const isUnavailable = isHoldfastError(error, 'BACKEND_UNAVAILABLE')
      if (phase !== 'committing' && (isEndedWithLease || isUnavailable) && leaseEnd.signal.aborted)
        throw phase === 'opening' ? leaseEnd.signal.reason : leaseEnd.error
      // The effect's own error only says that its connection was gone.
      if (serverStateOf(error) === ENDED_AS_IDLE) throw error
      // Errors of an effect are passed on as they are, but for the server's word that all of it is to be done again.
      if (failedEffect !== undefined) throw conflictOf(failedEffect.error) ?? failedEffect.error
      throw conflictOf(error) ?? constraintIn(error) ?? error
    } finally {
      stopListening()
      stopWatching()
    }
  }
  const told = tell()
  const end = async (): Promise<void> => {
    await Promise.allSettled([told])
    if (phase !== 'committing') await over()
  }
  return { told, isOver: end() }
}

async function assertSameTransaction(
  runner: SqlRunner,
  { sameTransaction, signal }: TransactionTerms,
  transaction: string,
): Promise<void> {
  try {
    const [row] = await runner.query(sameTransaction, [transaction], signal === undefined ? {} : { signal })
    if (row?.[0] === 'true') return
  } catch (error) {
    // Nothing has been committed.
    signal?.throwIfAborted()
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
const ENDED_AS_IDLE = '25P03'

/** A constraint that is checked at the commit is the effect's own mistake, and comes out as it is. */
function constraintIn(error: unknown): unknown {
  return isHoldfastError(error, 'BACKEND_UNAVAILABLE') && serverStateOf(error)?.startsWith('23')
    ? error.cause
    : undefined
}
