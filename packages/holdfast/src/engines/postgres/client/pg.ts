/**
 * `pg`. What may go wrong around one statement:
 *
 *   connect · send · commit · answer
 *     no connection, or cancelled before sending: certainly nothing happened.
 *     cancelled, or the connection ends, after sending: unknown. The connection is destroyed and not given back to the
 *     pool, because it may hang for as long as TCP lets it, and a pool of hanging connections serves no call.
 *     the server says ERROR: it has undone the statement.
 */

import { unlessAborted } from '../../../base/aborting.ts'
import type { Clock } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { ClosedError } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import { withLimit } from '../../../base/within.ts'
import type {
  DatabaseOptions,
  DedicatedConnection,
  ListenEvents,
  Listener,
  PostgresDatabase,
  QueryOptions,
  SqlRunner,
  TransactionOptions,
  TransactionWork,
} from './database.ts'
import { sqlStateOf } from './failures.ts'
import { quoteIdentifier } from './identifiers.ts'
import { endedAsIdle, isEndedAsIdle, limitIdleSql } from './idle-limit.ts'
import { giveBack, runStatement, stateOf } from './pg-connection.ts'
import { PgDedicated } from './pg-dedicated.ts'
import { PgLender } from './pg-lender.ts'
import type { Parameter, PgPool, PgPoolClient, Row } from './types.ts'

const CANCEL_WITHIN_MS = 1_000

/** The name of a statement is unknown to the server, or taken. */
function isUnkept(error: unknown): boolean {
  const state = sqlStateOf(error instanceof Error ? error.cause : undefined)
  return state === '26000' || state === '42P05'
}

export class PgDatabase implements PostgresDatabase {
  readonly client = 'pg'
  readonly seesWarnings = true
  readonly #pool: PgPool
  readonly #backend: string
  readonly #clock: Clock
  readonly #closing = new AbortController()
  readonly #lender: PgLender
  readonly #hasSpare: boolean
  /** Until the server does not know a name that it was told, or has it from another client: then a pooler shares its sessions. */
  #keepsStatements: boolean

  constructor(
    pool: PgPool,
    {
      backend,
      clock,
      spare,
      prepare,
    }: Required<Pick<DatabaseOptions, 'backend' | 'clock' | 'spare' | 'prepare'>>,
  ) {
    this.#pool = pool
    this.#backend = backend
    this.#clock = clock
    this.#hasSpare = spare
    this.#keepsStatements = prepare
    this.#lender = new PgLender(pool, backend, clock)
  }

  get shortage(): string | undefined {
    return this.#lender.shortage
  }

  async query(
    text: string,
    parameters: readonly Parameter[] = [],
    options: QueryOptions = {},
  ): Promise<readonly Row[]> {
    const stop = options.call ?? options.signal
    const client = await (this.#hasSpare ? this.#lender.connectOrSpare(stop) : this.#lender.connect(stop))
    const name = this.#keepsStatements ? options.name : undefined
    try {
      return await runStatement(client, this.#backend, text, parameters, stop, name)
    } catch (error) {
      if (name === undefined || !isUnkept(error)) throw error
      // The server refused it before it ran, so to send it again does nothing twice.
      this.#keepsStatements = false
      return await runStatement(client, this.#backend, text, parameters, stop)
    } finally {
      giveBack(client)
    }
  }

  async transaction<T>(work: TransactionWork<T>, options: TransactionOptions = {}): Promise<T> {
    const client = await this.#lender.connect(options.signal)
    const transaction: { atWork?: number } = {}
    try {
      return await this.#transact(client, transaction, work, options)
    } finally {
      const { atWork } = transaction
      if (atWork === undefined || stateOf(client).broken === undefined) giveBack(client)
      else this.#cancelAtServer(atWork).finally(() => giveBack(client))
    }
  }

  /** `transaction.atWork`: the server's process, while the transaction has work in it. */
  async #transact<T>(
    client: PgPoolClient,
    transaction: { atWork?: number },
    work: TransactionWork<T>,
    { isolation, maxIdleMs = defaults.ttlMs, until, signal }: TransactionOptions,
  ): Promise<T> {
    const state = stateOf(client)
    const query: SqlRunner['query'] = (text, parameters, each) =>
      runStatement(client, this.#backend, text, parameters, each?.signal ?? signal)
    const begin = isolation === undefined ? 'BEGIN' : `BEGIN ISOLATION LEVEL ${isolation}`
    const limitIdle = limitIdleSql(maxIdleMs)
    try {
      const [row] = await query(
        `${begin}; ${limitIdle === null ? '' : `${limitIdle}; `}SELECT pg_backend_pid()`,
      )
      transaction.atWork = Number(row?.[0])
      const result = await unlessAborted(work({ query }, client), until, () => {
        // The work may go on, so the connection must not go back to the pool.
        state.broken ??= new Error('the transaction was ended', { cause: until?.reason })
        return until?.reason
      })
      delete transaction.atWork
      await query('COMMIT')
      return result
    } catch (error) {
      // Nothing is lost when this fails: the connection is then destroyed, and the server rolls back by itself. So it
      // does with one that is broken or still at work: there ROLLBACK would have to wait.
      if (state.broken === undefined) {
        delete transaction.atWork
        await this.#rollBack(client)
      }
      throw isEndedAsIdle(state.broken) ? endedAsIdle(this.#backend, maxIdleMs, state.broken) : error
    }
  }

  /** A connection that does not answer within the limit is given up as well: it would be missing from the pool for ever. */
  async #rollBack(client: PgPoolClient): Promise<void> {
    try {
      await this.#within(defaults.callTimeoutMs, (signal) =>
        runStatement(client, this.#backend, 'ROLLBACK', [], signal),
      )
    } catch (failure) {
      stateOf(client).broken ??= failure as Error
    }
  }

  /**
   * Otherwise the server would go on with the statement in flight, and cancelled calls would pile up there behind a lock that
   * is stuck. The connection is kept meanwhile, so its process serves no other transaction, also behind a pooler.
   */
  async #cancelAtServer(processId: number): Promise<void> {
    const cancel = async (signal: AbortSignal) => {
      const spare = await this.#lender.spare(signal)
      const text = 'SELECT pg_cancel_backend($1)'
      await runStatement(spare, this.#backend, text, [processId], signal).finally(() => giveBack(spare))
    }
    // A statement that cannot be cancelled goes on until the server finds that its connection has ended.
    await this.#within(CANCEL_WITHIN_MS, cancel).catch(ignore)
  }

  async #within(ms: number, work: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
    await withLimit(this.#clock, ms, ({ signal }) => work(signal), { keepsProcessAlive: true })
  }

  dedicated({ signal }: QueryOptions = {}): Promise<DedicatedConnection> {
    return PgDedicated.open(this.#pool, { backend: this.#backend, clock: this.#clock, signal })
  }

  async listen(channel: string, events: ListenEvents): Promise<Listener> {
    const dedicated = await PgDedicated.open(this.#pool, {
      backend: this.#backend,
      clock: this.#clock,
      signal: this.#closing.signal,
      unref: true,
    })
    dedicated.connection.on('notification', (message) => {
      if (message.channel === channel) events.onNotification(message.payload ?? '')
    })
    dedicated.onEnd(events.onEnd)
    try {
      await dedicated.query(`LISTEN ${quoteIdentifier(channel)}`, [], { signal: this.#closing.signal })
    } catch (error) {
      await dedicated.close()
      throw error
    }
    events.onListening()
    return dedicated
  }

  async close(): Promise<void> {
    this.#closing.abort(new ClosedError(`The ${this.#backend} client`))
    await this.#lender.close()
  }
}
