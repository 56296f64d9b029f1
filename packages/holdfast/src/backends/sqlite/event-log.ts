/**
 * The log of events, for watchers. It is written only while the file is watched, by the transactions that make the
 * changes. So without a watcher an event costs nothing: the transaction reads one column more.
 *
 *   closed ──a watcher comes──▶ open                   with a new id                                   [open]
 *   open ──a watcher comes, or prolongs──▶ open                                                        [open]
 *   open ──an event comes after `watched_until`──▶ closed     the same transaction empties the log     [#isOpen]
 *
 * While it is open it has every event since it was opened, up to the last `KEPT_EVENTS`. A position in it means
 * something only together with its id.
 */
import { publicIdOf } from '../../base/ids.ts'
import type { WatchEventKind } from '../../spi.ts'
import type { NameKey, Statements } from './statements.ts'

export const KEPT_EVENTS = 10_000

/** How long the file stays watched after a watcher has come or prolonged: one that comes back within it has missed nothing. */
export const WATCHED_FOR_MS = 60_000

/** What an event tells of a claim. */
export interface LoggedClaim extends NameKey {
  readonly attempt: string
  readonly session: number | bigint
  readonly owner: string | null
  readonly token: bigint | null
}

/** The log, within one transaction. */
export class EventLog {
  readonly #sql: Statements
  readonly #nowMs: number
  /** Null: closed. Undefined: not read yet. */
  #watchedUntilMs: number | null | undefined
  #appended = false

  constructor(sql: Statements, nowMs: number) {
    this.#sql = sql
    this.#nowMs = nowMs
  }

  get hasNew(): boolean {
    return this.#appended
  }

  /** Saves a statement where `watched_until` was read in this transaction for another reason. */
  know(watchedUntilMs: number | null): void {
    if (this.#watchedUntilMs === undefined) this.#watchedUntilMs = watchedUntilMs
  }

  /** `newId` is used if it was closed. */
  open(newId: string): void {
    this.#watchedUntilMs = this.#nowMs + WATCHED_FOR_MS
    this.#sql.openLog.run(newId, this.#watchedUntilMs)
  }

  append(kind: WatchEventKind, { namespace, name, attempt, session, owner, token }: LoggedClaim): void {
    if (!this.#isOpen()) return
    this.#sql.logEvent.run(kind, namespace, name, publicIdOf(attempt), session, owner, token)
    this.#appended = true
  }

  /** Before everything that the session has is deleted. */
  appendEndOf(session: number, ending: 'released' | 'expired'): void {
    if (!this.#isOpen()) return
    const logged = this.#sql.logHoldersOf.run(session, ending) + this.#sql.logWaitersOf.run(session)
    if (logged > 0) this.#appended = true
  }

  beforeCommit(): void {
    if (this.#appended) this.#sql.shortenLog.run(KEPT_EVENTS)
  }

  #isOpen(): boolean {
    if (this.#watchedUntilMs === undefined)
      this.#watchedUntilMs = this.#sql.watchedUntil.first()?.watched_until ?? null
    if (this.#watchedUntilMs === null) return false
    if (this.#watchedUntilMs > this.#nowMs) return true
    this.#sql.closeLog.run()
    this.#sql.emptyLog.run()
    this.#watchedUntilMs = null
    return false
  }
}
