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

import { Cancellation, unlessCancelled } from '../base/cancellation.ts'
import type { Clock } from '../base/clock.ts'
import type { Fence } from '../base/fence.ts'
import { checkName } from '../base/names.ts'
import { checkKnownOptions, checkNumber, checkOneOf } from '../base/options.ts'
import {
  checkClientOptions,
  checkSchema,
  checkSchemaOptions,
  ensureTables,
  type NativeTransaction,
  type PostgresClient,
  type PostgresDatabase,
  prepareTables,
  quoteIdentifier,
  type SqlRunner,
  type SqlTransaction,
  sharedDatabase,
  sqlRunnerOf,
  tablesSql,
  typedStep,
} from '../clients/postgres/index.ts'
import { announceAccepted } from './checkpoint.ts'
import { Forgetting } from './forgetting.ts'
import type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from './guard.ts'
import { type Lanes, lanesOf } from './postgres/lanes.ts'
import { guardTables } from './postgres/layout.ts'
import { LeaseEnd } from './postgres/lease-end.ts'
import { guardStatements } from './postgres/statements.ts'
import { PostgresStore } from './postgres/store.ts'
import { transact } from './postgres/transaction.ts'
import { assertHeld, checkEffect, checkProofs } from './proofs.ts'
import {
  checkEnterOptions,
  checkGuardOptions,
  checkPruneOptions,
  checkRunOptions,
  type GuardSettings,
} from './settings.ts'

export type {
  CustomTransaction,
  DrizzleTransaction,
  KyselyTransaction,
  NativeTransaction,
  Notice,
  Parameter,
  PgConnection,
  PgNotification,
  PgPool,
  PgPoolClient,
  PgQuery,
  PgTransaction,
  PostgresClient,
  PostgresJs,
  PostgresJsConnection,
  PostgresJsQuery,
  PostgresJsReserved,
  PostgresJsRunner,
  Row,
  SqlTransaction,
} from '../clients/postgres/index.ts'
export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from './guard.ts'
export {
  applyFenced,
  type ColumnValues,
  type FencedRow,
  type FencedStatement,
  type FencedUpdate,
  type FencedUpsert,
  fencedRead,
  fencedUpdate,
  fencedUpsert,
} from './postgres/one-statement.ts'
export {
  showFence,
  type TableFence,
  type TableFenceOptions,
  tableFence,
  type WriteRefusal,
  writeRefusalOf,
} from './postgres/table-fence.ts'

export type Isolation = 'read committed' | 'repeatable read' | 'serializable'

export interface PostgresGuardOptions<Client extends PostgresClient> extends GuardOptions {
  /** A `Pool` of `pg`, or a client of `postgres` (postgres.js), for the database in which the protected data is. */
  readonly client: Client
  /** Where the guard keeps its tables. Default `holdfast`. */
  readonly schema?: string
  /** Whether it may create them. Default: true. `postgresGuardSchema()` has the SQL for those who do it themselves. */
  readonly createSchema?: boolean
  /** Of the transactions of `run`. Default: what the server or the client's settings say. */
  readonly isolation?: Isolation
  /**
   * The server ends a transaction of `run` that was idle between two statements for that long, so that a holder that is
   * frozen does not block its successor. A lower `idle_in_transaction_session_timeout` of the session stays. Default: the
   * TTL of the lease, at least 1 s; 15 s for a fence without its lease. `Infinity`: Holdfast sets no limit.
   */
  readonly maxIdleMs?: number
  readonly clock?: Clock
}

/** What an effect gets: a checked-out client of `pg`, or a transaction of postgres.js. */
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
    lanes: lanesOf(options.client),
    settings,
    schema,
    create,
    isolation,
    maxIdleMs,
  })
  return guard as unknown as PostgresGuard<TransactionOf<Client>>
}

/** The SQL that creates the guard's tables, for those who apply migrations themselves. */
export function postgresGuardSchema(options: { readonly schema?: string } = {}): string {
  checkKnownOptions('postgresGuardSchema options', options, ['schema'])
  return tablesSql(guardTables, checkSchema(options.schema))
}

interface Parts {
  readonly database: PostgresDatabase
  readonly lanes: Lanes
  readonly settings: GuardSettings
  readonly schema: string
  readonly create: boolean
  readonly isolation: Isolation | undefined
  readonly maxIdleMs: number | undefined
}

class TableGuard implements PostgresGuard<NativeTransaction> {
  readonly #parts: Parts
  readonly #store: PostgresStore
  readonly #sameTransaction: string
  readonly #forgetting: Forgetting
  #hasTables = false
  #preparing: Promise<void> | undefined

  constructor(parts: Parts) {
    const sql = guardStatements(quoteIdentifier(parts.schema))
    this.#parts = parts
    this.#store = new PostgresStore(sql, parts.settings)
    this.#sameTransaction = sql.sameTransaction
    this.#forgetting = new Forgetting(parts.settings)
  }

  get name(): string {
    return this.#parts.settings.name
  }

  async run<T>(
    proof: Proof | readonly Proof[],
    effect: (tx: NativeTransaction) => Promise<T> | T,
    options?: RunOptions,
  ): Promise<T> {
    const { once, signal } = checkRunOptions(options)
    const proofs = checkProofs(proof, once)
    checkEffect(effect)
    assertHeld(proofs)
    const { database, lanes, schema, isolation, settings } = this.#parts
    const { clock } = settings
    lanes.assertOutside()
    signal?.throwIfAborted()
    const keys = proofs.map(({ fence }) => JSON.stringify([schema, this.name, fence.name]))
    const leaseEnd = new LeaseEnd(proofs)
    const { maxIdleMs = leaseEnd.maxIdleMs } = this.#parts
    const stop = new Cancellation()
    const unties = [stop.follow(signal), stop.follow(leaseEnd.signal)]
    try {
      const result = await lanes.run(
        keys,
        async () => {
          // These query the database too, so a cancelled run does not wait for them.
          await unlessCancelled(
            this.#ready().then(() => this.#forgetIfDue()),
            stop,
          )
          const sameTransaction = this.#sameTransaction
          return transact(
            { database, isolation, signal, sameTransaction, clock, leaseEnd, maxIdleMs },
            (runner) => this.#store.pass(runner, proofs, once),
            (runner, native) => lanes.runEffect(runner, () => effect(native)),
          )
        },
        stop.signal,
      )
      announceAccepted(this.name, proofs)
      return result
    } finally {
      for (const untie of unties) untie()
      leaseEnd.stop()
    }
  }

  async enter(tx: SqlTransaction, proof: Proof | readonly Proof[], options?: EnterOptions): Promise<void> {
    const { once } = checkEnterOptions(options)
    const proofs = checkProofs(proof, once)
    const runner = sqlRunnerOf(tx)
    await typedStep(async () => {
      // What a transaction makes goes with it if it is rolled back, so only what was there before counts for the next.
      if (!this.#hasTables) this.#hasTables = (await this.#ensureTables(runner)).found
      await this.#store.pass(runner, proofs, once)
    })
    announceAccepted(this.name, proofs)
  }

  async highest(name: string): Promise<Fence | null> {
    checkName(name)
    // Inside an effect the answer is what the effect's own transaction sees; another connection might be long in coming.
    const { inside } = this.#parts.lanes
    if (inside === undefined) await this.#ready()
    const remembered = await typedStep(() => this.#store.recall(inside ?? this.#parts.database, name))
    return remembered?.highest ?? null
  }

  async prune(options: { readonly untouchedForMs: number }): Promise<number> {
    const untouchedForMs = checkPruneOptions(options)
    this.#parts.lanes.assertOutside()
    await this.#ready()
    return this.#forget(untouchedForMs, { patient: true })
  }

  async #forgetIfDue(): Promise<void> {
    if (!this.#forgetting.isDue()) return
    // A run does not fail because something old could not be forgotten; there will be another time.
    await this.#forget(this.#parts.settings.forgetAfterMs, { patient: false }).catch(() => 0)
  }

  #forget(untouchedForMs: number, how: { patient: boolean }): Promise<number> {
    return typedStep(() =>
      this.#parts.database.transaction((runner) => this.#store.forget(runner, untouchedForMs, how)),
    )
  }

  /** All who come first wait for one look at the tables: one each, left behind by those who call off, would use up the pool. */
  async #ready(): Promise<void> {
    if (this.#hasTables) return
    this.#preparing ??= this.#prepare().finally(() => {
      this.#preparing = undefined
    })
    await this.#preparing
  }

  async #prepare(): Promise<void> {
    const { database, settings, schema, create } = this.#parts
    await prepareTables(database, guardTables, schema, { create, clock: settings.clock })
    this.#hasTables = true
  }

  #ensureTables(runner: SqlRunner): Promise<{ readonly found: boolean }> {
    const { schema, create } = this.#parts
    return ensureTables(runner, guardTables, schema, { create })
  }
}
