/**
 * A guard for what lives in PostgreSQL. Fences are checked and remembered in the same transaction as the effect, in
 * tables of the guard's own in the same database, so the guard forgets nothing that the data remembers.
 *
 * ```ts
 * import pg from 'pg'
 * import { postgresGuard } from 'holdfast/guards/postgres'
 *
 * const pool = new pg.Pool()
 * const guard = postgresGuard({ client: pool })
 *
 * await guard.run(lease, async (tx) => {
 *   const { rows } = await tx.query('SELECT balance FROM accounts WHERE id = $1', [7])
 *   await tx.query('UPDATE accounts SET balance = $1 WHERE id = $2', [rows[0].balance - 10, 7])
 * })
 * ```
 *
 * Transactions for one name wait for each other at the name's row, until they commit; for different names they do not.
 * It works behind a pooler in transaction mode.
 */

import { Cancellation, unlessCancelled } from '../../../base/cancellation.ts'
import type { Clock } from '../../../base/clock.ts'
import { checkKnownOptions, checkNumber, checkOneOf } from '../../../base/options.ts'
import { callInside, type SerialQueue, serialQueueOf } from '../../../base/serial-queue.ts'
import type { EnterOptions, Guard, GuardOptions, Proof } from '../../../guards/guard.ts'
import { type Entry, GuardBase } from '../../../guards/guard-base.ts'
import type { Remembered } from '../../../guards/rule.ts'
import { checkGuardOptions, type GuardSettings } from '../../../guards/settings.ts'
import {
  checkClientOptions,
  type NativeTransaction,
  type PostgresClient,
  type PostgresDatabase,
  quoteIdentifier,
  type SqlRunner,
  type SqlTransaction,
  sharedDatabase,
  sqlRunnerOf,
  typedStep,
} from '../client/index.ts'
import { checkSchema, checkSchemaOptions, ensureTables, prepareTables, tablesSql } from '../tables/tables.ts'
import { guardTables } from './layout.ts'
import { LeaseEnd } from './lease-end.ts'
import { guardStatements } from './statements.ts'
import { PostgresStore } from './store.ts'
import { transact } from './transaction.ts'

export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from '../../../guards/guard.ts'
export type {
  CustomTransaction,
  DrizzleTransaction,
  KyselyTransaction,
  PgTransaction,
  SqlTransaction,
} from '../client/index.ts'
export type * from '../client/types.ts'
export {
  showFence,
  type TableFence,
  type TableFenceOptions,
  tableFence,
  type WriteRefusal,
  writeRefusalOf,
} from './table-fence.ts'

export type Isolation = 'read committed' | 'repeatable read' | 'serializable'

export interface PostgresGuardOptions<Client extends PostgresClient> extends GuardOptions {
  /** A `Pool` of `pg`, or a client of `postgres` (postgres.js), for the database in which the protected data is. */
  readonly client: Client
  /** Where the guard keeps its tables. Default `holdfast`. */
  readonly schema?: string
  /** Whether it may create them. Default: true. `postgresGuardSchema()` has the SQL for users who do it themselves. */
  readonly createSchema?: boolean
  /** The isolation level of the transactions of `run`. Default: that of the server or the client's settings. */
  readonly isolation?: Isolation
  /**
   * The server ends a transaction of `run` that was idle between two statements for that long, so that a holder that is
   * frozen does not block its successor. A lower `idle_in_transaction_session_timeout` of the session stays. Default: the
   * TTL of the lease, at least 1 s; 15 s for a fence without its lease. `Infinity`: Holdfast sets no limit.
   */
  readonly maxIdleMs?: number
  readonly clock?: Clock
}

/** The transaction that an effect gets: a checked-out client of `pg`, or a transaction of postgres.js. */
export type TransactionOf<Client> = Client extends {
  connect: { (): Promise<infer PoolClient>; (callback: never): void }
}
  ? PoolClient
  : Client extends {
        begin: { (work: (tx: infer Transaction) => never): unknown; (options: string, work: never): unknown }
      }
    ? Transaction
    : NativeTransaction

export interface PostgresGuard<Tx> extends Guard<Tx> {
  /**
   * `tx` is whatever runs SQL in your transaction: a client of `pg` on which you have said BEGIN, a transaction of
   * postgres.js, Kysely or Drizzle, or an object with a method `run(text, parameters)`. Call it first, before any read.
   *
   * @throws ConflictError   the transaction is older than what another has committed for the name (REPEATABLE READ and
   *                         SERIALIZABLE), or it was ended in a deadlock: roll back, and begin again
   */
  enter(tx: Tx | SqlTransaction, proof: Proof | readonly Proof[], options?: EnterOptions): Promise<void>
}

export function postgresGuard<Client extends PostgresClient>(
  options: PostgresGuardOptions<Client>,
): PostgresGuard<TransactionOf<Client>> {
  checkClientOptions('postgresGuard options', options)
  const settings = checkGuardOptions(options, ['client', 'schema', 'createSchema', 'isolation', 'maxIdleMs'])
  const { isolation, maxIdleMs } = options
  if (isolation !== undefined)
    checkOneOf('isolation', isolation, ['read committed', 'repeatable read', 'serializable'])
  if (maxIdleMs !== undefined) checkNumber('maxIdleMs', maxIdleMs, { min: 1, infinityAllowed: true })
  const { schema, create } = checkSchemaOptions(options)
  const database = sharedDatabase(options.client)
  const guard = new TableGuard({
    database,
    queue: serialQueueOf(options.client),
    settings,
    schema,
    create,
    isolation,
    maxIdleMs,
  })
  return guard as unknown as PostgresGuard<TransactionOf<Client>>
}

/** The SQL that creates the guard's tables, for users who apply migrations themselves. */
export function postgresGuardSchema(options: { readonly schema?: string } = {}): string {
  checkKnownOptions('postgresGuardSchema options', options, ['schema'])
  return tablesSql(guardTables, checkSchema(options.schema))
}

interface Parts {
  readonly database: PostgresDatabase
  /** The queues of all guards of the client, with a key for each name: they would wait for each other's connections. */
  readonly queue: SerialQueue<SqlRunner>
  readonly settings: GuardSettings
  readonly schema: string
  readonly create: boolean
  readonly isolation: Isolation | undefined
  readonly maxIdleMs: number | undefined
}

class TableGuard extends GuardBase<NativeTransaction> {
  readonly #parts: Parts
  readonly #store: PostgresStore
  readonly #sameTransaction: string
  #hasTables = false
  #preparing: Promise<void> | undefined

  constructor(parts: Parts) {
    super(parts.settings)
    const sql = guardStatements(quoteIdentifier(parts.schema))
    this.#parts = parts
    this.#store = new PostgresStore(sql, parts.settings)
    this.#sameTransaction = sql.sameTransaction
  }

  protected async runEntered<T>(
    { proofs, once }: Entry,
    effect: (tx: NativeTransaction) => Promise<T> | T,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const { database, queue, schema, isolation } = this.#parts
    const { clock } = this.settings
    queue.assertOutside()
    signal?.throwIfAborted()
    const keys = proofs.map(({ fence }) => JSON.stringify([schema, this.name, fence.name]))
    const leaseEnd = new LeaseEnd(proofs)
    const { maxIdleMs = leaseEnd.maxIdleMs } = this.#parts
    const sameTransaction = this.#sameTransaction
    const stop = new Cancellation()
    const unties = [stop.follow(signal), stop.follow(leaseEnd.signal)]
    const told = Promise.withResolvers<T>()
    // The next run for a name waits until the transaction is over, also if its caller was told before.
    const running = queue.run(
      async (queued) => {
        // These query the database too, so a cancelled run does not wait for them.
        await unlessCancelled(
          this.#ready().then(() => this.#forgetIfDue()),
          stop,
        )
        const runEffect = async (runner: SqlRunner, native: NativeTransaction) => {
          queued.context = runner
          try {
            return await callInside(queued, () => effect(native))
          } finally {
            queued.isOver = true
          }
        }
        const transaction = transact(
          { database, isolation, signal, sameTransaction, clock, leaseEnd, maxIdleMs },
          (runner) => this.#store.pass(runner, proofs, once),
          runEffect,
        )
        transaction.told.then(told.resolve, told.reject)
        await transaction.isOver
      },
      { keys, signal: stop.signal },
    )
    running.catch(told.reject)
    try {
      return await told.promise
    } finally {
      for (const untie of unties) untie()
      leaseEnd.stop()
    }
  }

  protected async enterIn(tx: SqlTransaction, { proofs, once }: Entry): Promise<void> {
    const runner = sqlRunnerOf(tx)
    await typedStep(async () => {
      // Tables that a transaction makes go with it if it is rolled back, so only those that were there before count for the next.
      if (!this.#hasTables) this.#hasTables = (await this.#ensureTables(runner)).found
      await this.#store.pass(runner, proofs, once)
    })
  }

  protected async recall(name: string): Promise<Remembered | null> {
    // Inside an effect the answer is what the effect's own transaction sees; another connection might be long in coming.
    const { context: inside } = this.#parts.queue.inside ?? {}
    if (inside === undefined) await this.#ready()
    return typedStep(() => this.#store.recall(inside ?? this.#parts.database, name))
  }

  protected async forget(untouchedForMs: number): Promise<number> {
    this.#parts.queue.assertOutside()
    await this.#ready()
    return this.#forget(untouchedForMs, { patient: true })
  }

  async #forgetIfDue(): Promise<void> {
    if (!this.isForgettingDue()) return
    // A run does not fail because something old could not be forgotten; there will be another time.
    await this.#forget(this.settings.forgetAfterMs, { patient: false }).catch(() => 0)
  }

  #forget(untouchedForMs: number, how: { patient: boolean }): Promise<number> {
    return typedStep(() =>
      this.#parts.database.transaction((runner) => this.#store.forget(runner, untouchedForMs, how)),
    )
  }

  /** The first calls share one look at the tables: one for each cancelled call would use up the pool. */
  async #ready(): Promise<void> {
    if (this.#hasTables) return
    this.#preparing ??= this.#prepare().finally(() => {
      this.#preparing = undefined
    })
    await this.#preparing
  }

  async #prepare(): Promise<void> {
    const { database, schema, create } = this.#parts
    await prepareTables(database, guardTables, schema, { create, clock: this.settings.clock })
    this.#hasTables = true
  }

  #ensureTables(runner: SqlRunner): Promise<{ readonly found: boolean }> {
    const { schema, create } = this.#parts
    return ensureTables(runner, guardTables, schema, { create })
  }
}
