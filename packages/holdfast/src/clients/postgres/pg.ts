/**
 * `pg`. What may go wrong around one statement:
 *
 *   connect · send · commit · answer
 *     no connection, or cancelled before sending: certainly nothing happened.
 *     cancelled, or the connection ends, after sending: unknown. The connection is destroyed and not given back to the
 *     pool, because it may hang for as long as TCP lets it, and a pool of hanging connections serves nobody. If it was
 *     cancelled, the server is told before (`pg-cancel.ts`).
 *     the server says ERROR: it has undone the statement.
 *   An `error` event comes at any time: `pg` takes its own listener away while a connection is checked out, and the event
 *   can come before we are told that we have it, when the server's farewell arrives together with its welcome.
 */
import { onAborted, unlessAborted } from '../../base/aborting.ts'
import { afterThisTurn, systemClock } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError, ClosedError } from '../../base/errors.ts'
import { cancelledCall, orAborted } from './cancelling.ts'
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
import { endWithin } from './ending.ts'
import { asUnavailable } from './failures.ts'
import { quoteIdentifier } from './identifiers.ts'
import { endedAsIdle, isEndedAsIdle, limitIdleSql } from './idle-limit.ts'
import { cancelStatement } from './pg-cancel.ts'
import { PgDedicated } from './pg-dedicated.ts'
import { runStatement } from './pg-statement.ts'
import { SpareConnection } from './spare-connection.ts'
import type { Parameter, PgConnection, PgPool, PgPoolClient, Row } from './types.ts'

const ignore = () => {}

/** A pool that is full for a moment is no reason to open another connection. */
const SPARE_AFTER_MS = 100

export class PgDatabase implements PostgresDatabase {
  readonly client = 'pg'
  readonly seesWarnings = true
  readonly #pool: PgPool
  readonly #backend: string
  readonly #closing = new AbortController()
  readonly #spare: SpareConnection | undefined
  #closed = false
  /** Requests for a connection that no call waits for any more. The pool cannot take them back. */
  #leftInPool = 0

  constructor(pool: PgPool, backend: string, spare: boolean) {
    this.#pool = pool
    this.#backend = backend
    if (spare) this.#spare = new SpareConnection(backend, (signal) => this.dedicated({ signal, unref: true }))
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
    if (this.#spare === undefined)
      return this.#borrow(options, (connection) => connection.query(text, parameters, options))
    // The pool serves in order. A request that is left in it waits, so another one would wait too, and be left as well.
    const isStillShort = this.#leftInPool > 0 && this.shortage !== undefined
    const client = isStillShort ? null : await this.#checkOutSoon(options)
    if (client !== null)
      return this.#with(client, (connection) => connection.query(text, parameters, options))
    return this.#spare.query(text, parameters, options, () => this.shortage ?? 'the pool was full')
  }

  transaction<T>(work: TransactionWork<T>, options: TransactionOptions = {}): Promise<T> {
    const { isolation, maxIdleMs = defaults.ttlMs, until, ...rest } = options
    const { signal } = rest
    return this.#borrow(rest, async (connection) => {
      const query: SqlRunner['query'] = (text, parameters, each) =>
        connection.query(text, parameters, { ...rest, ...each })
      const begin = isolation === undefined ? 'BEGIN' : `BEGIN ISOLATION LEVEL ${isolation}`
      const limitIdle = limitIdleSql(maxIdleMs)
      await connection.query(limitIdle === null ? begin : `${begin}; ${limitIdle}`, [], rest)
      const honest = (error: unknown) =>
        isEndedAsIdle(connection.broken) ? endedAsIdle(this.#backend, maxIdleMs, connection.broken) : error
      let result: T
      try {
        const working = work(signal === undefined ? connection : { query }, connection.native)
        result = await unlessAborted(working, until, () => {
          // The work may go on, so the connection must not go back to the pool.
          connection.cutOff(until?.reason)
          return until?.reason
        })
        // Not left to COMMIT, which would not be sent: the connection would go back with the transaction open.
        if (signal?.aborted) throw cancelledCall(this.#backend, 'not-applied', signal)
      } catch (error) {
        // Nothing is lost when this fails: the connection is then destroyed, and the server rolls back by itself. So it
        // does with one that is broken or still at work for somebody who has gone: there ROLLBACK would wait in line.
        if (connection.broken === undefined) await rollBack(connection)
        throw honest(error)
      }
      try {
        await connection.query('COMMIT', [], rest)
      } catch (error) {
        throw honest(error)
      }
      return result
    })
  }

  async dedicated(options: OwnClientOptions = {}): Promise<DedicatedConnection> {
    const ownClient = await this.#ownClient(options)
    return new PgDedicated(ownClient.connection, ownClient.end, this.#backend)
  }

  async listen(channel: string, events: ListenEvents): Promise<Listener> {
    const { connection, end } = await this.#ownClient({ signal: this.#closing.signal, unref: true })
    const dedicated = new PgDedicated(connection, end, this.#backend)
    connection.on('notification', (message) => {
      if (message.channel === channel) events.onNotification(message.payload ?? '')
    })
    dedicated.onEnd(events.onEnd)
    try {
      await dedicated.query(`LISTEN ${quoteIdentifier(channel)}`)
    } catch (error) {
      await dedicated.close()
      throw error
    }
    // It waits for news only; whoever waits for it keeps the process alive.
    dedicated.unref()
    events.onListening()
    return dedicated
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#closing.abort(new ClosedError(`The ${this.#backend} client`))
    await this.#spare?.close()
    stopListening(this.#pool)
  }

  /** With a connection of the pool, which goes back afterwards, unless something is wrong with it. */
  async #borrow<T>(options: QueryOptions, use: (connection: Borrowed) => Promise<T>): Promise<T> {
    return this.#with(await this.#checkOut(options), use)
  }

  async #with<T>(client: PgPoolClient, use: (connection: Borrowed) => Promise<T>): Promise<T> {
    const borrowed = new Borrowed(client, this.#pool, this.#backend)
    try {
      return await use(borrowed)
    } finally {
      borrowed.giveBack()
    }
  }

  /** Null: the pool had none free for a while, and was not asked any longer. */
  async #checkOutSoon(options: QueryOptions): Promise<PgPoolClient | null> {
    const given = new AbortController()
    const untie = options.signal === undefined ? ignore : onAborted(options.signal, () => given.abort())
    const connecting = this.#checkOut({ signal: given.signal })
    let isShort = false
    // Asked only then: a connection that is free now may go to a call that came before, and one may be being opened.
    const timer = systemClock.setTimer(SPARE_AFTER_MS, () => {
      isShort = this.shortage !== undefined
      if (isShort) given.abort()
    })
    try {
      return await connecting
    } catch (error) {
      if (isShort && options.signal?.aborted !== true) return null
      throw error
    } finally {
      timer.cancel()
      untie()
    }
  }

  async #checkOut({ signal }: QueryOptions): Promise<PgPoolClient> {
    const off = () => cancelledCall(this.#backend, 'not-applied', signal as AbortSignal)
    if (signal?.aborted) throw off()
    const connecting = this.#pool.connect()
    try {
      return await orAborted(connecting, signal, () => {
        this.#leftInPool++
        connecting
          .then((client) => client.release(), ignore)
          .finally(() => {
            this.#leftInPool--
          })
        return off()
      })
    } catch (error) {
      throw asUnavailable(this.#backend, 'no connection', error, 'not-applied')
    }
  }

  /** A connection beside the pool, so that the pool keeps all of its own; kept out of it if the pool cannot make one. */
  async #ownClient(
    options: OwnClientOptions,
  ): Promise<{ connection: PgConnection; end: () => Promise<void> }> {
    const { Client, options: settings } = this.#pool as { Client?: PgClientClass; options?: object }
    if (typeof Client !== 'function' || settings === undefined) {
      const client = await this.#checkOut(options)
      client.on('error', ignore)
      return { connection: client, end: async () => client.release(true) }
    }
    const client = new Client(settings)
    client.on('error', ignore)
    if (options.unref) client.unref?.()
    const end = () =>
      endWithin(
        () => client.end(),
        () => [client],
      )
    try {
      const connecting = client.connect().then(ignore)
      await orAborted(connecting, options.signal, () => {
        end().catch(ignore)
        return cancelledCall(this.#backend, 'not-applied', options.signal as AbortSignal)
      })
    } catch (error) {
      throw asUnavailable(this.#backend, 'no connection', error, 'not-applied')
    }
    return { connection: client, end }
  }
}

/** A connection that does not answer within the limit is given up as well: it would be missing from the pool for ever. */
async function rollBack(connection: Borrowed): Promise<void> {
  const tooLong = new AbortController()
  const timer = systemClock.setTimer(defaults.callTimeoutMs, () => tooLong.abort(), {
    keepsProcessAlive: true,
  })
  try {
    await connection.query('ROLLBACK', [], { signal: tooLong.signal })
  } catch (failure) {
    connection.giveUp(failure as Error)
  } finally {
    timer.cancel()
  }
}

/** How many of ours use each pool: one listener serves them all, so that Node does not suspect a leak. */
const users = new WeakMap<PgPool, number>()

/** A pool reports the end of an idle connection as an event, and opens another when it needs one. */
function listenForErrors(pool: PgPool): void {
  const before = users.get(pool) ?? 0
  users.set(pool, before + 1)
  if (before > 0) return
  pool.on('error', ignore)
  pool.on('acquire', listenUntilTold)
}

/** Connections that have our listener until the end of this turn. */
const listenedTo = new WeakSet<PgConnection>()

/**
 * For the caller that checks it out: until it had the time to listen itself. Calls that were cancelled while they waited
 * for a connection pass it on at once, any number of them in one turn, and one listener serves them all.
 */
function listenUntilTold(connection: PgConnection): void {
  if (listenedTo.has(connection)) return
  listenedTo.add(connection)
  connection.on('error', ignore)
  afterThisTurn(() => {
    listenedTo.delete(connection)
    connection.removeListener('error', ignore)
  })
}

function stopListening(pool: PgPool): void {
  const left = (users.get(pool) ?? 1) - 1
  users.set(pool, left)
  if (left > 0) return
  pool.removeListener('error', ignore)
  pool.removeListener('acquire', listenUntilTold)
}

type PgClientClass = new (
  options: object,
) => PgConnection & { connect(): Promise<unknown>; end(): Promise<void>; unref?(): void }

interface OwnClientOptions extends QueryOptions {
  /** It does not keep the process alive, from before the server's first answer on. */
  readonly unref?: boolean
}

/** A connection of the pool while we have it. */
class Borrowed implements SqlRunner {
  readonly #client: PgPoolClient
  readonly #pool: PgPool
  readonly #backend: string
  #broken: Error | undefined
  /** The server may be at work for somebody who has gone. */
  #isCancelled = false

  constructor(client: PgPoolClient, pool: PgPool, backend: string) {
    this.#client = client
    this.#pool = pool
    this.#backend = backend
    client.on('error', this.#onError)
  }

  async query(
    text: string,
    parameters: readonly Parameter[] = [],
    { signal }: QueryOptions = {},
  ): Promise<readonly Row[]> {
    try {
      return await runStatement(this.#client, this.#backend, text, parameters, signal)
    } catch (error) {
      // After an error of the server a connection is as good as any. One whose statement has not been answered is not:
      // nobody may get it while it is still at work.
      if (error instanceof BackendUnavailableError && error.outcome === 'unknown') {
        this.#isCancelled ||= this.#broken === undefined && signal?.aborted === true
        this.#onError(error)
      }
      throw error
    }
  }

  get native(): PgPoolClient {
    return this.#client
  }

  get broken(): Error | undefined {
    return this.#broken
  }

  giveUp(error: Error): void {
    this.#onError(error)
  }

  /** The same while another caller may have a statement in flight on it. */
  cutOff(reason: unknown): void {
    this.#isCancelled ||= this.#broken === undefined
    this.#onError(new Error('the transaction was ended', { cause: reason }))
  }

  giveBack(): void {
    if (this.#isCancelled) void cancelStatement(this.#pool, this.#client).then(() => this.#release())
    else this.#release()
  }

  #release(): void {
    this.#client.removeListener('error', this.#onError)
    if (this.#broken === undefined) this.#client.release()
    else this.#client.release(this.#broken)
  }

  readonly #onError = (error: Error) => {
    this.#broken ??= error
  }
}
