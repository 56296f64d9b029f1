/** What an operator may do to a name, each as a step inside a transaction. */
import { CapacityMismatchError } from '../../core/errors.ts'
import { type ForceTarget, LOCK_CAPACITY } from '../../spi.ts'
import { catchUp, promote } from './line.ts'
import type { NamePlace } from './statements.ts'
import type { Transaction } from './transaction.ts'

/** Compare-and-release: who got the name in between is not hit (T74). The mark tells the old holder why. */
export function forceRelease(tx: Transaction, { namespace, name }: NamePlace, target: ForceTarget): number {
  catchUp(tx)
  const token = target.kind === 'token' ? target.token : null
  const holder = target.kind === 'holder' ? target.holder : null
  const matching = tx.sql.matching.all(namespace, name, token, holder)
  for (const { attempt, session } of matching) {
    tx.sql.mark.run(session, attempt, 'force-released')
    tx.sql.deleteHolder.run(namespace, name, attempt, session)
  }
  if (matching.length > 0) promote(tx, namespace, name)
  return matching.length
}

export function resize(
  tx: Transaction,
  { namespace, name }: NamePlace,
  capacity: number,
): 'resized' | 'in-use' | 'not-found' {
  catchUp(tx)
  const holders = tx.sql.heldWeight.first(namespace, name)
  const heaviest = tx.sql.heaviestWaiter.first(namespace, name)
  const inUse = holders?.capacity ?? heaviest?.capacity ?? null
  if (inUse === null) return 'not-found'
  if (inUse === LOCK_CAPACITY) throw new CapacityMismatchError(name, capacity, inUse)
  if (Math.max(holders?.held ?? 0, heaviest?.weight ?? 0) > capacity) return 'in-use'
  tx.sql.resizeHolders.run(namespace, name, capacity)
  tx.sql.resizeWaiters.run(namespace, name, capacity)
  promote(tx, namespace, name)
  return 'resized'
}

export function forget(
  tx: Transaction,
  { namespace, name }: NamePlace,
): 'forgotten' | 'in-use' | 'not-found' {
  catchUp(tx)
  const held = (tx.sql.heldWeight.first(namespace, name)?.held ?? 0) > 0
  if (held || tx.sql.firstInLine.first(namespace, name) !== undefined) return 'in-use'
  if (typeof tx.sql.nameRow.first(namespace, name)?.data !== 'string') return 'not-found'
  // A name that is still closed stays so; its data goes all the same.
  if (tx.sql.forgetClosed.run(namespace, name) === 0) tx.sql.forget.run(namespace, name)
  return 'forgotten'
}
