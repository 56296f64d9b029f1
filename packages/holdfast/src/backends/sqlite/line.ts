/**
 * Whose turn it is. Hand-over happens inside the transaction that makes room: a release, an abandon, a close, a force
 * release, a resize, or `catchUp`, which does what time alone has brought about.
 *
 * Every transaction that decides anything first catches up, so that all rows that it then sees are alive; no other
 * statement has to ask whether a holder or a waiter still counts.
 */
import type { NamePlace } from './statements.ts'
import type { Transaction } from './transaction.ts'

/** Removes sessions whose time is up and opens names whose closing is over, if there are any. */
export function catchUp(tx: Transaction): void {
  const due = tx.sql.nextDue.first()
  const isDue = (atMs: number | null | undefined) => typeof atMs === 'number' && atMs <= tx.nowMs
  if (!isDue(due?.expiry) && !isDue(due?.opening)) return
  const touched = new Places()
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
  touched: Places,
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

/** Grants to the first in line for as long as they fit: one writer, or all readers that stand next to each other. */
export function promote(tx: Transaction, namespace: string, name: string): void {
  const { sql } = tx
  let first = sql.firstInLine.first(namespace, name)
  if (first === undefined) return
  const row = sql.nameRow.first(namespace, name)
  if ((row?.closed_until ?? 0) > tx.nowMs) return
  const data = row?.data ?? null
  let held = sql.heldWeight.first(namespace, name)?.held ?? 0
  while (first !== undefined && held + first.weight <= first.capacity) {
    const token = tx.drawToken()
    sql.promote.run(namespace, name, first.place, token, tx.nowMs, data)
    sql.leaveLine.run(namespace, name, first.place)
    const { session, attempt, address, owner } = first
    tx.log.append('acquired', { namespace, name, attempt, session, owner, token })
    tx.handovers.push({ session, attempt, address, token, data })
    held += first.weight
    first = held < first.capacity ? sql.firstInLine.first(namespace, name) : undefined
  }
}

/** A set of names. */
export class Places {
  readonly #places = new Map<string, NamePlace>()

  add(places: readonly NamePlace[]): void {
    // No name contains a control character, so the key is unambiguous.
    for (const place of places) this.#places.set(`${place.namespace}\n${place.name}`, place)
  }

  [Symbol.iterator](): Iterator<NamePlace> {
    return this.#places.values()
  }
}
