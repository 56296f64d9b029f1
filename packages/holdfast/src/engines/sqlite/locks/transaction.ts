/**
 * The rows that the rules of a name read and change (`kit/rules.ts`), within one write transaction. The engine's algorithm
 * is: many requests, one transaction, each by its rule. What may go wrong between the steps:
 *
 *   acquire    send · begin · look · insert · commit · answer
 *              crash before the commit: nothing happened. Crash or lost answer after it: the claim is the session's and
 *              ends with it; asked again, the attempt finds its own row and the same token. A pause anywhere: `since`
 *              is older than the session's last prolongation, so belief ends first.
 *   keepAlive  send · begin · prolong · commit · answer
 *              the row's new end counts from inside the transaction, belief from before it was sent.
 *   release    delete · promote · commit · wake
 *              one transaction: there is no moment in which the name is free and the first waiter does not have it.
 *              Crash before the wake-up: the successor holds the name and finds out at its next look.
 *   abandon    mark · delete · promote · commit
 *              a late request meets the mark; the mark goes only together with the session (T73, late originals).
 *
 * Every rule that decides does first what is due, so all rows that it sees are alive; only `deleteHolder` and `putData` ask
 * whether the session's time is up. An uncontended acquire is one look and one insert, its release one delete.
 */
import assert from 'node:assert/strict'
import type {
  Owner as AnyOwner,
  Ending,
  Granted,
  NameKey,
  NameSituation,
  Situation,
  Step,
} from '../../../kit/rules.ts'
import type { FoundClaim } from '../../../kit/session.ts'
import type { AcquireRequest, Claim, GrantedClaim } from '../../../spi.ts'
import { nextDueMs, type SituationRow, type Statements, type WaiterRow } from './statements.ts'
import { drawToken, type TokenCounter } from './tokens.ts'

export interface Owner extends AnyOwner {
  /** The number of the session's row; numbers are never used again. */
  readonly id: number
  /** Where the session's process listens for wake-ups; null if it does not. */
  readonly address?: () => string | null
}

/** A waiter that was granted. */
export interface Handover extends Granted {
  readonly session: number
  readonly attempt: string
  /** Where its process listens; null if it does not. */
  readonly address: string | null
}

export class Transaction implements Step<Owner> {
  readonly backend = 'sqlite'
  readonly sql: Statements
  /**
   * Read after the write lock was won. A process that prolonged a session has committed before that, and none can
   * while this transaction is open, so what has expired by this time stays so (T66, racing take-overs).
   */
  readonly nowMs: number
  /** Undefined until a token is drawn. */
  tokens: TokenCounter | undefined
  readonly handovers: Handover[] = []
  /** Sessions that this transaction has removed. */
  readonly endedSessions: number[] = []
  /** Called if and after this transaction has committed, before anything else is. */
  readonly afterCommit: (() => void)[] = []
  /** The counter as the last look has seen it. It does not change in the file before this transaction ends. */
  #counter: TokenCounter | undefined

  constructor(sql: Statements, nowMs: number) {
    this.sql = sql
    this.nowMs = nowMs
  }

  dueMs(): number {
    return nextDueMs(this.sql)
  }

  look({ namespace, id }: Owner, { name, attempt }: Claim): Situation {
    return this.#look(namespace, name, id, attempt)
  }

  lookAt({ namespace, name }: NameKey): NameSituation {
    return this.#look(namespace, name, null, null)
  }

  #look(namespace: string, name: string, session: number | null, attempt: string | null): SituationRow {
    const row = this.sql.situation.first(namespace, name, session, attempt)
    assert(row !== undefined, 'the table meta has a row')
    this.#counter = row
    return row
  }

  firstWaiter({ namespace, name }: NameKey): WaiterRow | undefined {
    return this.sql.firstWaiter.first(namespace, name)
  }

  heaviestWaiter({ namespace, name }: NameKey): number {
    return this.sql.heaviestWaiter.first(namespace, name)?.weight ?? 0
  }

  hasWaiters({ namespace, name }: NameKey, atLeast: number): boolean {
    return this.sql.hasMoreWaiters.first(namespace, name, atLeast - 1) !== undefined
  }

  grantOf({ namespace, id }: Owner, { name, attempt }: Claim): Granted | undefined {
    const found = this.sql.grantOf.first(namespace, name, attempt, id)
    return found && { token: BigInt(found.token), data: found.data }
  }

  claimsOf({ id }: Owner): readonly FoundClaim[] {
    return this.sql.claimsOf
      .all(id)
      .map(({ name, attempt, token }) => ({ name, attempt, grantId: token === null ? null : String(token) }))
  }

  forcedBecause({ id }: Owner, attempt: string): string | undefined {
    return this.sql.forcedBecause.first(id, attempt)?.detail
  }

  insertHolder(owner: Owner, request: AcquireRequest, data: string | null): Granted {
    this.tokens ??= this.#counter && { next: this.#counter.next, reserved: this.#counter.reserved }
    const token = drawToken(this)
    this.sql.insertHolder.run(...this.#columnsOf(owner, request), token, data, request.owner ?? null)
    return { token, data }
  }

  insertWaiter(owner: Owner, request: AcquireRequest): void {
    const address = owner.address?.() ?? null
    this.sql.insertWaiter.run(...this.#columnsOf(owner, request), address, request.owner ?? null)
  }

  /** Columns that a holder and a waiter have in common. */
  #columnsOf({ namespace, id }: Owner, request: AcquireRequest) {
    const { name, attempt, mode, weight, capacity, lockDelayMs, note = null } = request
    return [namespace, name, attempt, id, mode, weight, capacity, lockDelayMs, this.nowMs, note] as const
  }

  promote({ namespace, name }: NameKey, waiter: WaiterRow, data: string | null): void {
    const { place, session, attempt, address } = waiter
    const token = drawToken(this)
    this.sql.promote.run(namespace, name, place, token, this.nowMs, data)
    this.sql.deleteWaiter.run(namespace, name, attempt, session)
    this.handovers.push({ session, attempt, address, token, data })
  }

  deleteHolder({ namespace, id }: Owner, { name, attempt, grantId }: GrantedClaim) {
    return this.sql.release.first(namespace, name, attempt, id, this.nowMs, Number(grantId))
  }

  deleteClaim({ namespace, id }: Owner, { name, attempt }: Claim): boolean {
    const held = this.sql.deleteHolder.run(namespace, name, attempt, id)
    const waited = this.sql.deleteWaiter.run(namespace, name, attempt, id)
    return held + waited > 0
  }

  deleteForced({ namespace, name }: NameKey, ids: readonly string[], reason: string): number {
    const listed = JSON.stringify(ids)
    this.sql.markForced.run(namespace, name, listed, reason)
    return this.sql.deleteForced.run(namespace, name, listed)
  }

  markAbandoned({ id }: Owner, attempt: string): void {
    this.sql.markAbandoned.run(id, attempt)
  }

  prolong({ id }: Owner): boolean {
    return this.sql.prolong.run(id, this.nowMs) > 0
  }

  expiredSessions(): readonly Owner[] {
    return this.sql.expired.all(this.nowMs)
  }

  deleteSession({ id }: Owner, ending: Ending): readonly NameKey[] {
    const { sql } = this
    if (ending === 'expired') {
      sql.closeByLockDelay.run(id, this.nowMs)
      sql.markExpired.run(id)
    }
    const touched = sql.waitedForBeside.all(id)
    sql.deleteHoldersOf.run(id)
    sql.deleteWaitersOf.run(id)
    sql.deleteMarksOf.run(id)
    sql.deleteSession.run(id)
    this.endedSessions.push(id)
    return touched
  }

  close({ namespace, name }: NameKey, capacity: number, untilMs: number): void {
    this.sql.close.run(namespace, name, capacity, untilMs)
  }

  /** Also closes a log that is not watched any more. */
  openNames(): readonly NameKey[] {
    const { sql, nowMs } = this
    if (sql.closeLog.run(nowMs) > 0) sql.emptyLog.run()
    return [...sql.deleteOpened.all(nowMs), ...sql.openNames.all(nowMs)]
  }

  putData({ namespace, id }: Owner, { name, attempt, grantId }: GrantedClaim, data: string): boolean {
    const { sql, nowMs } = this
    if (sql.setData.run(namespace, name, attempt, id, nowMs, data, Number(grantId)) === 0) return false
    sql.logData.run(namespace, name, attempt)
    return true
  }

  dropData({ namespace, name }: NameKey): void {
    if (this.sql.forgetClosed.run(namespace, name) === 0) this.sql.forget.run(namespace, name)
  }

  putCapacity({ namespace, name }: NameKey, capacity: number): void {
    this.sql.resizeHolders.run(namespace, name, capacity)
    this.sql.resizeWaiters.run(namespace, name, capacity)
  }
}
