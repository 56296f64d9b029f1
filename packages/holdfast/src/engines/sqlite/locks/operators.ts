/** What an operator may do to a name, each as a step inside a transaction, on what the operator saw (T78). */
import { operatorCallExpired } from '../../../kit/backend-kit.ts'
import type { CapacityChange, OperatorCall } from '../../../spi.ts'
import { catchUp, promote } from './queue.ts'
import type { NameKey } from './statements.ts'
import type { Transaction } from './transaction.ts'

/** Before every step. */
function begin(tx: Transaction, { notAfterMs }: OperatorCall): void {
  if (tx.nowMs >= notAfterMs) throw operatorCallExpired('sqlite')
  catchUp(tx)
}

/** A claim that got the name in between is not hit (T74). The mark tells the old holder why. */
export function forceRelease(
  tx: Transaction,
  { namespace, name }: NameKey,
  ids: readonly string[],
  reason: string,
  call: OperatorCall,
): number {
  begin(tx, call)
  const listed = JSON.stringify(ids)
  tx.sql.markForced.run(namespace, name, listed, reason)
  const released = tx.sql.deleteForced.run(namespace, name, listed)
  if (released > 0) promote(tx, namespace, name)
  return released
}

export function resize(
  tx: Transaction,
  { namespace, name }: NameKey,
  { from, to }: CapacityChange,
  call: OperatorCall,
): 'resized' | 'in-use' | 'changed' {
  begin(tx, call)
  const holders = tx.sql.heldWeight.first(namespace, name)
  const heaviest = tx.sql.heaviestWaiter.first(namespace, name)
  if ((holders?.capacity ?? heaviest?.capacity) !== from) return 'changed'
  if (Math.max(holders?.held ?? 0, heaviest?.weight ?? 0) > to) return 'in-use'
  tx.sql.resizeHolders.run(namespace, name, to)
  tx.sql.resizeWaiters.run(namespace, name, to)
  promote(tx, namespace, name)
  return 'resized'
}

export function forget(
  tx: Transaction,
  { namespace, name }: NameKey,
  data: string,
  call: OperatorCall,
): 'forgotten' | 'in-use' | 'changed' {
  begin(tx, call)
  const held = (tx.sql.heldWeight.first(namespace, name)?.held ?? 0) > 0
  if (held || tx.sql.firstWaiter.first(namespace, name) !== undefined) return 'in-use'
  if (tx.sql.nameRow.first(namespace, name)?.data !== data) return 'changed'
  // A name that is still closed stays so; its data goes all the same.
  if (tx.sql.forgetClosed.run(namespace, name) === 0) tx.sql.forget.run(namespace, name)
  return 'forgotten'
}
