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
 * A connection has one transaction at a time, so runs on one connection wait for each other. Statements that the same
 * connection is given elsewhere while an effect awaits something end up in the effect's transaction: let nothing
 * but effects use the guard's connection, or keep effects synchronous.
 */
import type { DatabaseSync } from 'node:sqlite'
import type { Clock } from '../../../base/clock.ts'
import { ClosedError, InvalidArgumentError } from '../../../base/errors.ts'
import { type SerialQueue, serialQueueOf } from '../../../base/serial-queue.ts'
import { pass } from '../../../guards/checkpoint.ts'
import type { Guard, GuardOptions } from '../../../guards/guard.ts'
import { type Entry, GuardBase } from '../../../guards/guard-base.ts'
import type { Remembered } from '../../../guards/rule.ts'
import { checkGuardOptions, type GuardSettings } from '../../../guards/settings.ts'
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
} from '../client/index.ts'
import { ensureLayout } from './layout.ts'
import { SqliteStore } from './store.ts'

export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from '../../../guards/guard.ts'
export type { SqliteDatabase, SqliteParameter, SqliteStatement } from '../client/index.ts'

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

class TableGuard<Database extends SqliteDatabase>
  extends GuardBase<Database>
  implements SqliteGuard<Database>
{
  readonly #database: Database
  readonly #closeConnection: () => void
  /** Two guards of one connection wait for each other, too. */
  readonly #queue: SerialQueue
  /** One for each connection that `enter` is given; they know their prepared statements. */
  readonly #stores = new WeakMap<SqliteDatabase, SqliteStore>()
  #hasTables = false
  #closing: Promise<void> | undefined

  constructor(database: Database, settings: GuardSettings, closeConnection: () => void) {
    super(settings)
    this.#database = database
    this.#closeConnection = closeConnection
    this.#queue = serialQueueOf(database)
  }

  protected runEntered<T>(
    { proofs, once }: Entry,
    effect: (tx: Database) => Promise<T> | T,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    return this.#transact(async (store) => {
      ownStep(this.#database, () => {
        if (this.isForgettingDue()) store.forget(this.settings.forgetAfterMs)
        pass(store, this.settings, proofs, once)
      })
      return await effect(this.#database)
    }, signal)
  }

  /** `tx` may be another connection to the same file. Begin it with BEGIN IMMEDIATE if others write to the file. */
  protected async enterIn(tx: Database, { proofs, once }: Entry): Promise<void> {
    if (this.#closing !== undefined) throw new ClosedError('The guard')
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
      pass(store, this.settings, proofs, once)
    })
  }

  protected async recall(name: string): Promise<Remembered | null> {
    const recall = () => this.#storeOf(this.#database).recall(name)
    // Inside an effect the answer is what the effect's own transaction sees.
    if (this.#queue.inside !== undefined) return ownStep(this.#database, recall)
    return this.#queued((terms) => whileBusy(terms, recall))
  }

  protected forget(untouchedForMs: number): Promise<number> {
    return this.#transact(async (store) => ownStep(this.#database, () => store.forget(untouchedForMs)))
  }

  async close(): Promise<void> {
    this.#queue.assertOutside()
    this.#closing ??= this.#queue.run(async () => this.#closeConnection())
    await this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #transact<T>(body: (store: SqliteStore) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#queued((terms) => transact(terms, () => body(this.#storeOf(this.#database))), signal)
  }

  async #queued<T>(body: (terms: TransactionTerms) => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.#closing !== undefined) throw new ClosedError('The guard')
    const terms = { database: this.#database, clock: this.settings.clock, signal }
    return this.#queue.run(
      async () => {
        if (!this.#hasTables)
          await transact(terms, async () => ownStep(this.#database, () => ensureLayout(this.#database)))
        this.#hasTables = true
        return body(terms)
      },
      { signal },
    )
  }

  #storeOf(database: SqliteDatabase): SqliteStore {
    let store = this.#stores.get(database)
    if (store === undefined) {
      assertSameFile(database, this.#database)
      store = new SqliteStore(database, this.settings.name, this.settings.clock)
      this.#stores.set(database, store)
    }
    return store
  }
}

/** A guard in another file would remember something else, and refuse no stale fence. */
function assertSameFile(given: SqliteDatabase, own: SqliteDatabase): void {
  if (given === own) return
  const file = fileOf(given)
  if (file === '' || file !== fileOf(own))
    throw new InvalidArgumentError('tx', 'must be a connection to the file that the guard protects.')
}
