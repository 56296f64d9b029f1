/**
 * `pg`. What may go wrong around one statement:
 *
 *   connect · send · commit · answer
 *     no connection, or cancelled before sending: certainly nothing happened.
 *     cancelled, or the connection ends, after sending: unknown. The connection is destroyed and not given back to the
 *     pool, because it may hang for as long as TCP lets it, and a pool of hanging connections serves no call.
 *     the server says ERROR: it has undone the statement.
 */
import { cancelledCall, unlessAborted } from '../../base/aborting.ts'
import type { Clock } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { ClosedError } from '../../base/errors.ts'
import type {
  DedicatedConnection,
  ListenEvents,
  Listener,
  PostgresDatabase,
  QueryOptions,
  SqlRunner,
  TransactionOptions,
  TransactionWork,
} from './database.ts'
import { quoteIdentifier } from './identifiers.ts'
import { endedAsIdle, isEndedAsIdle, limitIdleSql } from './idle-limit.ts'
import { type Borrowed, PgLender } from './pg-borrowing.ts'
import { PgDedicated } from './pg-dedicated.ts'
import type { Parameter, PgPool, Row } from './types.ts'

const ignore = () => {}

const CANCEL_WITHIN_MS = 1_000

export class PgDatabase implements PostgresDatabase {
  readonly client = 'pg'
  readonly seesWarnings = true
  readonly #pool: PgPool
  readonly #backend: string
  readonly #clock: Clock
  readonly #closing = new AbortController()
  readonly #lender: PgLender
  readonly #hasSpare: boolean

  constructor(pool: PgPool, backend: string, clock: Clock, hasSpare: boolean) {
    this.#pool = pool
    this.#backend = backend
    this.#clock = clock
    this.#hasSpare = hasSpare
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
    const { signal } = options
    const lender = this.#lender
    const borrowed = await (this.#hasSpare ? lender.fromPoolOrSpare(signal) : lender.fromPool(signal))
    try {
      return await borrowed.query(text, parameters, options)
    } finally {
      borrowed.giveBack()
    }
  }

  async transaction<T>(work: TransactionWork<T>, options: TransactionOptions = {}): Promise<T> {
    const connection = await this.#lender.fromPool(options.signal)
    try {
      return await this.#transact(connection, work, options)
    } finally {
      const { processId } = connection
      if (processId === undefined || connection.broken === undefined) connection.giveBack()
      else this.#cancelAtServer(processId).finally(() => connection.giveBack())
    }
  }

  async #transact<T>(
    connection: Borrowed,
    work: TransactionWork<T>,
    { isolation, maxIdleMs = defaults.ttlMs, until, signal }: TransactionOptions,
  ): Promise<T> {
    const own: QueryOptions = signal === undefined ? {} : { signal }
    const query: SqlRunner['query'] = (text, parameters, each) =>
      connection.query(text, parameters, { ...own, ...each })
    const begin = isolation === undefined ? 'BEGIN' : `BEGIN ISOLATION LEVEL ${isolation}`
    const limitIdle = limitIdleSql(maxIdleMs)
    const [row] = await query(
      `${begin}; ${limitIdle === null ? '' : `${limitIdle}; `}SELECT pg_backend_pid()`,
    )
    connection.processId = Number(row?.[0])
    try {
      const result = await unlessAborted(work({ query }, connection.native), until, () => {
        // The work may go on, so the connection must not go back to the pool.
        connection.giveUp(new Error('the transaction was ended', { cause: until?.reason }))
        return until?.reason
      })
      // Not left to COMMIT, which would not be sent: the connection would go back with the transaction open.
      if (signal?.aborted) throw cancelledCall(this.#backend, signal, 'not-applied')
      connection.processId = undefined
      await query('COMMIT')
      return result
    } catch (error) {
      // Nothing is lost when this fails: the connection is then destroyed, and the server rolls back by itself. So it
      // does with one that is broken or still at work: there ROLLBACK would have to wait.
      if (connection.broken === undefined) await this.#rollBack(connection)
      throw isEndedAsIdle(connection.broken)
        ? endedAsIdle(this.#backend, maxIdleMs, connection.broken)
        : error
    }
  }

  /** A connection that does not answer within the limit is given up as well: it would be missing from the pool for ever. */
  async #rollBack(connection: Borrowed): Promise<void> {
    connection.processId = undefined
    try {
      await this.#within(defaults.callTimeoutMs, (signal) => connection.query('ROLLBACK', [], { signal }))
    } catch (failure) {
      connection.giveUp(failure as Error)
    }
  }

  /**
   * Otherwise the server would go on with the statement in flight, and cancelled calls would pile up there behind a lock that
   * is stuck. The connection is kept meanwhile, so its process serves no other transaction, also behind a pooler.
   */
  async #cancelAtServer(processId: number): Promise<void> {
    const cancel = async (signal: AbortSignal) => {
      const borrowed = await this.#lender.spare(signal)
      await borrowed
        .query('SELECT pg_cancel_backend($1)', [processId], { signal })
        .finally(() => borrowed.giveBack())
    }
    // A statement that cannot be cancelled goes on until the server finds that its connection has ended.
    await this.#within(CANCEL_WITHIN_MS, cancel).catch(ignore)
  }

  async #within(ms: number, work: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
    const limit = new AbortController()
    const timer = this.#clock.setTimer(ms, () => limit.abort(), { keepsProcessAlive: true })
    try {
      await work(limit.signal)
    } finally {
      timer.cancel()
    }
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
