/**
 * A guard for what lives in a SQLite file. Fences are checked and remembered in the same transaction as the effect,
 * in tables of the guard's own in the same file, so the guard forgets nothing that the data remembers.
 *
 * ```ts
 * import { DatabaseSync } from 'node:sqlite'
 * import { sqliteGuard } from 'holdfast/guards/sqlite'
 *
 * const database = new DatabaseSync('accounts.db')
 * const guard = sqliteGuard({ database })
 *
 * await guard.run(lease, (tx) => {
 *   tx.prepare('UPDATE accounts SET balance = balance - ? WHERE id = ?').run(10, 42)
 * })
 * ```
 *
 * A connection has one transaction at a time, so runs on one connection take turns. Statements that the same
 * connection is given elsewhere while an effect awaits something end up in the effect's transaction: let nothing
 * but effects use the guard's connection, or keep effects synchronous.
 */
import type { DatabaseSync } from 'node:sqlite'
import type { Clock } from '../base/clock.ts'
import { ClosedError, InvalidArgumentError } from '../base/errors.ts'
import type { Fence } from '../base/fence.ts'
import { checkName } from '../base/names.ts'
import { Turns } from '../base/turns.ts'
import {
  checkFolderOf,
  fileOf,
  isInTransaction,
  isSqliteDatabase,
  openDatabase,
  ownStep,
  type SqliteDatabase,
  type TransactionTerms,
  transact,
  whileBusy,
} from '../clients/sqlite/index.ts'
import { announceAccepted, pass } from './checkpoint.ts'
import { Forgetting } from './forgetting.ts'
import type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from './guard.ts'
import { assertHeld, checkEffect, checkProofs } from './proofs.ts'
import {
  checkEnterOptions,
  checkGuardOptions,
  checkPruneOptions,
  checkRunOptions,
  type GuardSettings,
} from './settings.ts'
import { ensureLayout } from './sqlite/layout.ts'
import { SqliteStore } from './sqlite/store.ts'

export type { SqliteDatabase, SqliteParameter, SqliteStatement } from '../clients/sqlite/index.ts'
export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from './guard.ts'

export interface SqliteGuardOptions extends GuardOptions {
  readonly clock?: Clock
}

export interface SqliteGuard<Database extends SqliteDatabase> extends Guard<Database>, AsyncDisposable {
  /** Waits for the runs that were asked for, and closes the connection if the guard has opened it. */
  close(): Promise<void>
}

/** A guard on a connection of yours, or on one of its own to the file at `path`. */
export function sqliteGuard<Database extends SqliteDatabase>(
  options: SqliteGuardOptions & { readonly database: Database; readonly path?: never },
): SqliteGuard<Database>
export function sqliteGuard(
  options: SqliteGuardOptions & { readonly path: string; readonly database?: never },
): SqliteGuard<DatabaseSync>
export function sqliteGuard(
  options: SqliteGuardOptions & { readonly database?: SqliteDatabase; readonly path?: string },
): SqliteGuard<SqliteDatabase> {
  const settings = checkGuardOptions(options, ['database', 'path'])
  const { database, path } = options
  if ((database === undefined) === (path === undefined))
    throw new InvalidArgumentError('sqliteGuard', 'needs either `database` or `path`.')
  if (database !== undefined) {
    if (!isSqliteDatabase(database))
      throw new InvalidArgumentError(
        'database',
        'must be a DatabaseSync of node:sqlite, or an object like it.',
      )
    return new TableGuard(database, settings, () => {})
  }
  const opened = openFile(path)
  return new TableGuard(opened, settings, () => opened.close())
}

function openFile(path: unknown): DatabaseSync {
  if (typeof path !== 'string' || path === '')
    throw new InvalidArgumentError('path', 'must be the path of a file.')
  if (path !== ':memory:') checkFolderOf(path)
  return ownStep(path, () => openDatabase(path))
}

/** Two guards of one connection must take turns with each other, too. */
const turnsByConnection = new WeakMap<SqliteDatabase, Turns>()

function turnsOf(database: SqliteDatabase): Turns {
  let turns = turnsByConnection.get(database)
  if (turns === undefined) {
    turns = new Turns()
    turnsByConnection.set(database, turns)
  }
  return turns
}

class TableGuard<Database extends SqliteDatabase> implements SqliteGuard<Database> {
  readonly #database: Database
  readonly #settings: GuardSettings
  readonly #closeConnection: () => void
  readonly #turns: Turns
  readonly #forgetting: Forgetting
  /** One for each connection that `enter` is given; they know their prepared statements. */
  readonly #stores = new WeakMap<SqliteDatabase, SqliteStore>()
  #hasTables = false
  #closed = false

  constructor(database: Database, settings: GuardSettings, closeConnection: () => void) {
    this.#database = database
    this.#settings = settings
    this.#closeConnection = closeConnection
    this.#turns = turnsOf(database)
    this.#forgetting = new Forgetting(settings)
  }

  get name(): string {
    return this.#settings.name
  }

  async run<T>(
    proof: Proof | readonly Proof[],
    effect: (tx: Database) => Promise<T> | T,
    options?: RunOptions,
  ): Promise<T> {
    const { once, signal } = checkRunOptions(options)
    const proofs = checkProofs(proof, once)
    checkEffect(effect)
    assertHeld(proofs)
    const result = await this.#transact(async (store) => {
      ownStep(this.#database, () => {
        if (this.#forgetting.isDue()) store.forget(this.#settings.forgetAfterMs)
        pass(store, this.#settings, proofs, once)
      })
      return await effect(this.#database)
    }, signal)
    announceAccepted(this.name, proofs)
    return result
  }

  /** `tx` may be another connection to the same file. Begin it with BEGIN IMMEDIATE if others write to the file. */
  async enter(tx: Database, proof: Proof | readonly Proof[], options?: EnterOptions): Promise<void> {
    const { once } = checkEnterOptions(options)
    const proofs = checkProofs(proof, once)
    if (this.#closed) throw new ClosedError('The guard')
    if (!isSqliteDatabase(tx)) throw new InvalidArgumentError('tx', 'must be a connection of node:sqlite.')
    ownStep(tx, () => {
      if (!isInTransaction(tx))
        throw new InvalidArgumentError(
          'tx',
          'must be inside a transaction: begin one first, so that the check and what follows are one step.',
        )
      const store = this.#storeOf(tx)
      // Tables that a transaction makes go with it if it is rolled back, so this proves nothing for the next one.
      if (!this.#hasTables) ensureLayout(tx)
      pass(store, this.#settings, proofs, once)
    })
    announceAccepted(this.name, proofs)
  }

  async highest(name: string): Promise<Fence | null> {
    checkName(name)
    const recall = () => this.#storeOf(this.#database).recall(name)?.highest ?? null
    // Inside an effect the answer is what the effect's own transaction sees.
    if (this.#turns.isInside) return ownStep(this.#database, recall)
    return this.#takeTurn((terms) => whileBusy(terms, recall))
  }

  async prune(options: { readonly untouchedForMs: number }): Promise<number> {
    const untouchedForMs = checkPruneOptions(options)
    return this.#transact(async (store) => ownStep(this.#database, () => store.forget(untouchedForMs)))
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await this.#turns.take(async () => this.#closeConnection())
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #transact<T>(body: (store: SqliteStore) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#takeTurn((terms) => transact(terms, () => body(this.#storeOf(this.#database))), signal)
  }

  async #takeTurn<T>(body: (terms: TransactionTerms) => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.#closed) throw new ClosedError('The guard')
    const terms = { database: this.#database, clock: this.#settings.clock, signal }
    return this.#turns.take(async () => {
      if (!this.#hasTables)
        await transact(terms, async () => ownStep(this.#database, () => ensureLayout(this.#database)))
      this.#hasTables = true
      return body(terms)
    }, signal)
  }

  #storeOf(database: SqliteDatabase): SqliteStore {
    let store = this.#stores.get(database)
    if (store === undefined) {
      assertSameFile(database, this.#database)
      store = new SqliteStore(database, this.#settings.name, this.#settings.clock)
      this.#stores.set(database, store)
    }
    return store
  }
}

/** In another file the guard would remember something else, and refuse nobody. */
function assertSameFile(given: SqliteDatabase, own: SqliteDatabase): void {
  if (given === own) return
  const file = fileOf(given)
  if (file === '' || file !== fileOf(own))
    throw new InvalidArgumentError('tx', 'must be a connection to the file that the guard protects.')
}
