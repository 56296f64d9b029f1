/**
 * Grants names to waiters. A hand-over happens inside the transaction that makes room: a release, an abandon, a close, a force
 * release, a resize, or `catchUp`, which removes what has expired and opens what was closed.
 *
 * Every transaction that decides anything first catches up, so that all rows that it then sees are alive; no other
 * statement has to ask whether a holder or a waiter still counts.
 */
import type { NameKey } from './statements.ts'
import type { Transaction } from './transaction.ts'

/** Removes sessions whose time is up and opens names whose closing is over, if there are any. */
export function catchUp(tx: Transaction): void {
  const due = tx.sql.nextDue.first()
  const isDue = (atMs: number | null | undefined) => typeof atMs === 'number' && atMs <= tx.nowMs
  if (!isDue(due?.expiry) && !isDue(due?.opening)) return
  const touched = new TouchedNames()
  for (const { no, expires_at } of tx.sql.expired.all(tx.nowMs)) {
    tx.sql.closeByLockDelay.run(no, expires_at, tx.nowMs)
    removeSession(tx, no, 'expired', touched)
  }
  touched.add(tx.sql.opened.all(tx.nowMs))
  tx.sql.deleteOpened.run(tx.nowMs)
  tx.sql.openNames.run(tx.nowMs)
  for (const { namespace, name } of touched) promote(tx, namespace, name)
}

/** Ends a session with everything that it has. The caller promotes on the names that it touched. */
export function removeSession(
  tx: Transaction,
  session: number,
  ending: 'released' | 'expired',
  touched: TouchedNames,
): void {
  const { sql } = tx
  tx.log.appendEndOf(session, ending)
  touched.add(sql.waitedForBeside.all(session))
  sql.deleteHoldersOf.run(session)
  sql.deleteWaitersOf.run(session)
  sql.deleteMarksOf.run(session)
  sql.deleteSession.run(session)
  tx.endedSessions.push(session)
}

/** Grants the first waiters as long as they fit: one writer, or all readers up to the next writer. */
export function promote(tx: Transaction, namespace: string, name: string): void {
  const { sql } = tx
  let first = sql.firstWaiter.first(namespace, name)
  if (first === undefined) return
  const row = sql.nameRow.first(namespace, name)
  if ((row?.closed_until ?? 0) > tx.nowMs) return
  const data = row?.data ?? null
  let held = sql.heldWeight.first(namespace, name)?.held ?? 0
  while (first !== undefined && held + first.weight <= first.capacity) {
    const token = tx.drawToken()
    sql.promote.run(namespace, name, first.position, token, tx.nowMs, data)
    sql.deletePosition.run(namespace, name, first.position)
    const { session, attempt, address, owner } = first
    tx.log.append('acquired', { namespace, name, attempt, session, owner, token })
    tx.handovers.push({ session, attempt, address, token, data })
    held += first.weight
    first = held < first.capacity ? sql.firstWaiter.first(namespace, name) : undefined
  }
}

/** Names on which there may be room now. */
export class TouchedNames {
  readonly #names = new Map<string, NameKey>()

  add(names: readonly NameKey[]): void {
    // No name contains a control character, so the key is unambiguous.
    for (const each of names) this.#names.set(`${each.namespace}\n${each.name}`, each)
  }

  [Symbol.iterator](): Iterator<NameKey> {
    return this.#names.values()
  }
}
