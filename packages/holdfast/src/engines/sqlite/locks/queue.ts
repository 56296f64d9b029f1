/**
 * Grants names to waiters. A hand-over happens inside the transaction that makes room: a release, an abandon, a close, a force
 * release, a resize, or `catchUp`, which removes what has expired and opens what was closed.
 *
 * Every transaction that decides anything first catches up, so that all rows that it then sees are alive; no other
 * statement has to ask whether a holder or a waiter still counts.
 */
import type { NameKey, Statements } from './statements.ts'
import { drawToken } from './tokens.ts'
import type { Transaction } from './transaction.ts'

/** When time alone will next change something in the file. */
export function nextDueMs(sql: Statements): number {
  return sql.fileState.first()?.due ?? Infinity
}

/** Does what is due: removes sessions whose time is up, opens names whose closing is over, closes a log without watchers. */
export function catchUp(tx: Transaction, dueMs = nextDueMs(tx.sql)): void {
  const { sql, nowMs } = tx
  if (dueMs > nowMs) return
  const touched = sql.expired.all(nowMs).map(({ no, expires_at }) => {
    sql.closeByLockDelay.run(no, expires_at, nowMs)
    sql.markExpired.run(no)
    return removeSession(tx, no)
  })
  touched.push(sql.deleteOpened.all(nowMs), sql.openNames.all(nowMs))
  promoteAll(tx, touched.flat())
  if (sql.closeLog.run(nowMs) > 0) sql.emptyLog.run()
}

/** Ends a session with everything that it has. Returns the names on which there may be room now. */
export function removeSession({ sql, endedSessions }: Transaction, session: number): readonly NameKey[] {
  const touched = sql.waitedForBeside.all(session)
  sql.deleteHoldersOf.run(session)
  sql.deleteWaitersOf.run(session)
  sql.deleteMarksOf.run(session)
  sql.deleteSession.run(session)
  endedSessions.push(session)
  return touched
}

/** When all that is dead has been removed: a dead waiter must not be granted anything. */
export function promoteAll(tx: Transaction, names: readonly NameKey[]): void {
  // No name contains a control character, so the key is unambiguous.
  const distinct = new Map(names.map((each) => [`${each.namespace}\n${each.name}`, each]))
  for (const { namespace, name } of distinct.values()) promote(tx, namespace, name)
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
    const { session, attempt, address } = first
    const token = drawToken(tx)
    sql.promote.run(namespace, name, first.position, token, tx.nowMs, data)
    sql.deleteWaiter.run(namespace, name, attempt, session)
    tx.handovers.push({ session, attempt, address, token, data })
    held += first.weight
    first = held < first.capacity ? sql.firstWaiter.first(namespace, name) : undefined
  }
}
