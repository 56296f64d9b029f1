/**
 * `pg`. What may go wrong around one statement:
 *
 *   connect · send · commit · answer
 *     no connection, or cancelled before sending: certainly nothing happened.
 *     cancelled, or the connection ends, after sending: unknown. The connection is destroyed and not given back to the
 *     pool, because it may hang for as long as TCP lets it, and a pool of hanging connections serves no call.
 *     the server says ERROR: it has undone the statement.
 *
 * A locker's statements go over a connection beside the pool while the pool has none free: the user's own transactions may
 * have them all, and wait for the locker (T85).
 */
import { cancelledCall, onAborted, unlessAborted } from '../../base/aborting.ts'
import type { Clock } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError, ClosedError } from '../../base/errors.ts'
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
import { asUnavailable } from './failures.ts'
import { quoteIdentifier } from './identifiers.ts'
import { endedAsIdle, isEndedAsIdle, limitIdleSql } from './idle-limit.ts'
import { PgDedicated } from './pg-dedicated.ts'
import { listenForErrors, poolBeside } from './pg-pools.ts'
import { PgSockets } from './pg-sockets.ts'
import { runStatement, stateOf } from './pg-statement.ts'
import type { Parameter, PgPool, PgPoolClient, Row } from './types.ts'

const ignore = () => {}

/** A pool that is full for a moment is no reason to open another connection. */
const SPARE_AFTER_MS = 100
const SPARE_IDLE_MS = 10_000
const CANCEL_WITHIN_MS = 1_000

export class PgDatabase implements PostgresDatabase {
  readonly client = 'pg'
  readonly seesWarnings = true
  readonly #pool: PgPool
  readonly #backend: string
  readonly #clock: Clock
  readonly #closing = new AbortController()
  readonly #hasSpare: boolean
  readonly #spareSockets: PgSockets
  /** A pool of one, which opens its connection when it is needed and closes it when it has been idle. */
  #spare: PgPool | undefined
  /** Requests for a connection that no call waits for any more. The pool cannot take them back. */
  #leftInPool = 0

  constructor(pool: PgPool, backend: string, clock: Clock, hasSpare: boolean) {
    this.#pool = pool
    this.#backend = backend
    this.#clock = clock
    this.#hasSpare = hasSpare
    this.#spareSockets = new PgSockets(clock)
    listenForErrors(pool)
  }

  get shortage(): string | undefined {
    const { totalCount = 0, idleCount = 0, waitingCount = 0 } = this.#pool
    if (idleCount > 0 || waitingCount === 0) return undefined
    const waiting = waitingCount - this.#leftInPool
    return (
      `all ${totalCount} connections of the pool are in use${waiting > 0 ? `, and ${waiting} calls wait for one` : ''}: ` +
      'give the locker a pool of its own, or raise `max`'
    )
  }

  async query(
    text: string,
    parameters: readonly Parameter[] = [],
    options: QueryOptions = {},
  ): Promise<readonly Row[]> {
    const { signal } = options
    const client = await (this.#hasSpare ? this.#checkOutOrSpare(signal) : this.#checkOut(signal))
    const borrowed = new Borrowed(client, this.#backend)
    try {
      return await borrowed.query(text, parameters, options)
    } finally {
      borrowed.giveBack()
    }
  }

  async transaction<T>(work: TransactionWork<T>, options: TransactionOptions = {}): Promise<T> {
    const connection = new Borrowed(await this.#checkOut(options.signal), this.#backend)
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
      this.#spare ??= this.#openSpare()
      const borrowed = new Borrowed(await this.#checkOut(signal, this.#spare), this.#backend)
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
      await dedicated.query(`LISTEN ${quoteIdentifier(channel)}`)
    } catch (error) {
      await dedicated.close()
      throw error
    }
    events.onListening()
    return dedicated
  }

  async close(): Promise<void> {
    this.#closing.abort(new ClosedError(`The ${this.#backend} client`))
    const spare = this.#spare
    if (spare === undefined) return
    this.#spare = undefined
    await this.#spareSockets.endWithin(() => spare.end())
  }

  async #checkOutOrSpare(signal: AbortSignal | undefined): Promise<PgPoolClient> {
    // The pool serves in order. A request that is left in it waits, so another one would wait too, and be left as well.
    const isStillShort = this.#leftInPool > 0 && this.shortage !== undefined
    const client = isStillShort ? null : await this.#checkOutSoon(signal)
    if (client !== null) return client
    const shortage = this.shortage ?? 'the pool was full'
    this.#spare ??= this.#openSpare()
    try {
      return await this.#checkOut(signal, this.#spare)
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      const what = `${shortage}, and another connection could not be opened: ${why}`
      throw new BackendUnavailableError(this.#backend, what, 'not-applied', { cause: error })
    }
  }

  #openSpare(): PgPool {
    // A server that accepts and says nothing would keep the one connection for ever.
    const own = {
      max: 1,
      allowExitOnIdle: true,
      idleTimeoutMillis: SPARE_IDLE_MS,
      connectionTimeoutMillis: defaults.callTimeoutMs,
      stream: this.#spareSockets.create,
    }
    return poolBeside(this.#pool, own) ?? this.#pool
  }

  async #checkOut(signal: AbortSignal | undefined, pool = this.#pool): Promise<PgPoolClient> {
    return (await this.#connect(pool, signal, undefined)) as PgPoolClient
  }

  /** Null: the pool had none free for a while, and was not asked any longer. */
  #checkOutSoon(signal: AbortSignal | undefined): Promise<PgPoolClient | null> {
    return this.#connect(this.#pool, signal, SPARE_AFTER_MS)
  }

  #connect(
    pool: PgPool,
    signal: AbortSignal | undefined,
    withinMs: number | undefined,
  ): Promise<PgPoolClient | null> {
    if (signal?.aborted) return Promise.reject(cancelledCall(this.#backend, signal, 'not-applied'))
    return new Promise((resolve, reject) => {
      let isLeft = false
      const settle = () => {
        stopListening()
        timer?.cancel()
      }
      const leave = () => {
        isLeft = true
        this.#leftInPool++
        settle()
      }
      const stopListening =
        signal === undefined
          ? ignore
          : onAborted(signal, () => {
              leave()
              reject(cancelledCall(this.#backend, signal, 'not-applied'))
            })
      // Asked only then: a connection that is free now may go to a call that came before, and one may be being opened.
      const onSlow = () => {
        if (this.shortage === undefined) return
        leave()
        resolve(null)
      }
      const timer = withinMs === undefined ? undefined : this.#clock.setTimer(withinMs, onSlow)
      pool.connect().then(
        (client) => {
          if (isLeft) {
            this.#leftInPool--
            client.release()
            return
          }
          settle()
          resolve(client)
        },
        (error: unknown) => {
          if (isLeft) this.#leftInPool--
          settle()
          reject(asUnavailable(this.#backend, 'no connection', error, 'not-applied'))
        },
      )
    })
  }
}

/** A connection of the pool while we have it. */
class Borrowed implements SqlRunner {
  readonly native: PgPoolClient
  readonly #backend: string
  /** That of the server, while a transaction has work in it. */
  processId: number | undefined
  #failure: Error | undefined

  constructor(client: PgPoolClient, backend: string) {
    this.native = client
    this.#backend = backend
  }

  async query(
    text: string,
    parameters: readonly Parameter[] = [],
    { signal }: QueryOptions = {},
  ): Promise<readonly Row[]> {
    try {
      return await runStatement(this.native, this.#backend, text, parameters, signal)
    } catch (error) {
      // After an error of the server a connection is as good as any. One whose statement has not been answered is not:
      // no other call may get it while it is still at work.
      if (error instanceof BackendUnavailableError && error.outcome === 'unknown') this.giveUp(error)
      throw error
    }
  }

  get broken(): Error | undefined {
    return stateOf(this.native).broken ?? this.#failure
  }

  giveUp(error: Error): void {
    this.#failure ??= error
  }

  giveBack(): void {
    this.native.release(this.broken)
  }
}
