/**
 * A guard's memory, as rows. The steps of a pass, in the user's transaction or that of `run`:
 *
 *   1 lock and read the names · 2 read the floors · 3 judge · 4 lock the pin, make the issuers' rows, judge again ·
 *   5 remember · (the effect) · commit
 *
 *   Another transaction is at one of the names: step 1 waits for its row. A row is inserted for a name that has none. All
 *     names are locked in one statement and in one order, so two calls cannot wait for each other.
 *   READ COMMITTED: step 1 answers with the newest row, but the rest of a statement is as old as its start. So floors are
 *     read in a statement of their own. A pin is never changed once it is set; if there was none, step 4 reads it under a lock.
 *   REPEATABLE READ and SERIALIZABLE: the snapshot may be older than what others have committed. Step 1 writes the row, and so
 *     collides (40001) with every transaction that has been at the name since. If `forget` has deleted the row since, the
 *     issuer's row, which `forget` has changed, collides in step 2.
 *   `forget` runs meanwhile: it skips rows that are locked. If it has deleted a row, step 1 waits for its commit, finds
 *     nothing, and step 2 reads the floor that it left.
 *   `tx` is no transaction: step 5 compares the transaction's id with that of step 1 and changes nothing, and the rows that
 *     step 1 has inserted are deleted.
 */

import { InvalidArgumentError, isHoldfastError } from '../../../base/errors.ts'
import { fenceText } from '../../../base/fence.ts'
import { type Decision, decide, type GuardKnowledge } from '../../../guards/checkpoint.ts'
import type { CheckedProof } from '../../../guards/proofs.ts'
import type { Floor, Remembered } from '../../../guards/rule.ts'
import type { GuardSettings } from '../../../guards/settings.ts'
import { arrayLiteral, type SqlRunner, serverStateOf } from '../client/index.ts'
import { type GuardStatements, readRemembered } from './statements.ts'

export interface Passed {
  /** The id of the transaction in which it was remembered. */
  readonly transaction: string
}

export class PostgresStore {
  readonly #sql: GuardStatements
  readonly #settings: GuardSettings

  constructor(sql: GuardStatements, settings: GuardSettings) {
    this.#sql = sql
    this.#settings = settings
  }

  /** Throws if one of the proofs must not pass; nothing is remembered then. */
  async pass(runner: SqlRunner, proofs: readonly CheckedProof[], once: boolean): Promise<Passed> {
    const known = await this.#lock(runner, proofs)
    try {
      const decision = await this.#decide(runner, known, proofs, once)
      await this.#remember(runner, known.transaction, decision, proofs)
    } catch (error) {
      // A caller may commit all the same, and must not leave a trace of what was refused. After an error of the server
      // there is nothing to take back.
      if (known.isFresh && isRefusal(error))
        await runner.query(this.#sql.dropUnused, [this.#guard, namesOf(proofs)])
      throw error
    }
    return { transaction: known.transaction }
  }

  async recall(runner: SqlRunner, name: string): Promise<Remembered | null> {
    const [row] = await runner.query(this.#sql.recall, [this.#guard, name])
    return row === undefined ? null : readRemembered(row)
  }

  /**
   * To be called in a transaction of its own. It locks the issuers' rows first and waits for no name, so it only delays
   * runs with a name that is new. `patient`: whether it waits for transactions that have locked an issuer's row.
   */
  async forget(
    runner: SqlRunner,
    untouchedForMs: number,
    { patient }: { patient: boolean },
  ): Promise<number> {
    const untilMs = Math.round(this.#settings.clock.wallMs() - untouchedForMs)
    const locked = await runner.query(patient ? this.#sql.lockIssuers : this.#sql.lockFreeIssuers, [
      this.#guard,
    ])
    const issuers = arrayLiteral(locked.map(([issuer]) => String(issuer)))
    const [row] = await runner.query(this.#sql.forget, [this.#guard, String(untilMs), issuers])
    return Number(row?.[0] ?? 0)
  }

  get #guard(): string {
    return this.#settings.name
  }

  async #lock(runner: SqlRunner, proofs: readonly CheckedProof[]): Promise<LockedKnowledge> {
    const touchedMs = String(Math.round(this.#settings.clock.wallMs()))
    const rows = await runner.query(this.#sql.lock, [this.#guard, namesOf(proofs), touchedMs])
    const known = new LockedKnowledge(String(rows[0]?.[7]))
    for (const row of rows) {
      known.pinned ??= row[6] as string | null
      const remembered = readRemembered(row)
      if (remembered !== null) known.names.set(String(row[0]), remembered)
    }
    const fresh = proofs.filter(({ fence }) => !known.names.has(fence.name))
    known.isFresh = fresh.length > 0
    known.issuersToRead = [...new Set(fresh.map(({ fence }) => fence.issuer))].sort()
    return known
  }

  async #decide(
    runner: SqlRunner,
    known: LockedKnowledge,
    proofs: readonly CheckedProof[],
    once: boolean,
  ): Promise<Decision> {
    const missing = await this.#readFloors(runner, known)
    const first = decide(known, this.#settings, proofs, once)
    if (known.pinned !== null && missing.length === 0) return first
    // Only for proofs that would pass: a stranger must not leave a row behind.
    if (known.pinned === null) {
      await runner.query(this.#sql.makeGuard, [this.#guard])
      const [row] = await runner.query(this.#sql.lockPin, [this.#guard])
      known.pinned = (row?.[0] ?? null) as string | null
    }
    if (missing.length > 0) {
      await runner.query(this.#sql.makeIssuers, [this.#guard, arrayLiteral(missing)])
      await this.#readFloors(runner, known)
    }
    return decide(known, this.#settings, proofs, once)
  }

  /** Returns the issuers that have no row yet. */
  async #readFloors(runner: SqlRunner, known: LockedKnowledge): Promise<readonly string[]> {
    const { issuersToRead: issuers } = known
    if (issuers.length === 0) return []
    const rows = await runner.query(this.#sql.floors, [this.#guard, arrayLiteral(issuers)])
    for (const [issuer, token, grant] of rows)
      known.floors.set(
        String(issuer),
        token === null ? null : { token: BigInt(String(token)), grant: String(grant) },
      )
    return issuers.filter((issuer) => !known.floors.has(issuer))
  }

  async #remember(
    runner: SqlRunner,
    transaction: string,
    { pin, remember }: Decision,
    proofs: readonly CheckedProof[],
  ): Promise<void> {
    const highest = remember.map(({ remembered }) => remembered.highest)
    const texts = proofs.map(({ fence }) => fenceText(fence)).join(' ')
    const [row] = await runner.query(this.#sql.remember, [
      this.#guard,
      transaction,
      arrayLiteral(remember.map(({ name }) => name)),
      arrayLiteral(highest.map(({ issuer }) => issuer)),
      arrayLiteral(highest.map(({ mode }) => mode)),
      arrayLiteral(highest.map(({ token }) => String(token))),
      arrayLiteral(highest.map(({ grant }) => grant)),
      arrayLiteral(remember.map(({ remembered }) => remembered.exclusiveToken?.toString())),
      pin,
      texts,
    ])
    if (row?.[0] !== 'true')
      throw new InvalidArgumentError(
        'tx',
        'must be inside a transaction: begin one first, so that the check and what follows are one step.',
      )
  }
}

class LockedKnowledge implements GuardKnowledge {
  readonly transaction: string
  readonly names = new Map<string, Remembered>()
  /** Null: the issuer has a row and no floor. */
  readonly floors = new Map<string, Floor | null>()
  pinned: string | null = null
  /** Whether there is a name that is not remembered. Only such a name is compared with the floor. */
  isFresh = false
  issuersToRead: readonly string[] = []

  constructor(transaction: string) {
    this.transaction = transaction
  }

  pinnedIssuer(): string | null {
    return this.pinned
  }

  recall(name: string): Remembered | null {
    return this.names.get(name) ?? null
  }

  floorOf(issuer: string): Floor | null {
    return this.floors.get(issuer) ?? null
  }
}

function namesOf(proofs: readonly CheckedProof[]): string {
  return arrayLiteral(proofs.map(({ fence }) => fence.name))
}

/** The guard's own, and not an error of the database. */
function isRefusal(error: unknown): boolean {
  return isHoldfastError(error) && error.code !== 'BACKEND_UNAVAILABLE' && serverStateOf(error) === null
}
