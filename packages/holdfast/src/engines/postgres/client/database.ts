/**
 * One way to speak to PostgreSQL through whatever client people have.
 *
 * - Statements are parameterised. Those with a name may be kept by the server, and go without one as soon as it does not know a name:
 *   nothing else is kept in its session, so that all works behind a pooler in transaction mode.
 * - Every failure is a `BackendUnavailableError` with an honest outcome, or an `UnsupportedError` if trying again cannot
 *   help: a right, a table or a password that is missing. An `error` event of a connection that this
 *   layer touches never goes without a listener, which would end the process (T51, unheard errors).
 */
import { type Clock, systemClock } from '../../../base/clock.ts'
import { InvalidArgumentError } from '../../../base/errors.ts'
import type { Call } from '../../../spi.ts'
import { PgDatabase } from './pg.ts'
import { PostgresJsDatabase } from './postgres-js.ts'
import type { NativeTransaction, Parameter, PgPool, PostgresClient, PostgresJs, Row } from './types.ts'

export interface QueryOptions {
  /** When it aborts, the call settles with an unknown outcome; the connection is given up if the client can do that. */
  readonly signal?: AbortSignal
  /** The same as the signal of a call, which need not be made then. */
  readonly call?: Call
  /**
   * The name under which the server keeps the statement, with `pg`. It must belong to this text in all processes: behind a pooler
   * another one may have given it to the server.
   */
  readonly name?: string | undefined
}

/** Runs one statement at a time. */
export interface SqlRunner {
  query(text: string, parameters?: readonly Parameter[], options?: QueryOptions): Promise<readonly Row[]>
}

/** Called from a connection's events; none of them may throw. */
export interface ListenEvents {
  readonly onNotification: (payload: string) => void
  /** From now on notifications arrive. Called again after each automatic re-connection, where the client has one. */
  readonly onListening: () => void
  /** The listener's connection ended, and does not come back by itself. Called at most once, and not after `close`. */
  readonly onEnd: (error: unknown) => void
}

export interface Listener {
  close(): Promise<void>
}

/** A connection of its own, for what lives in the server's session: not behind a transaction pooler. */
export interface DedicatedConnection extends SqlRunner {
  /** At most once, also when it has ended already; not after `close`. */
  onEnd(listener: (error: unknown) => void): void
  close(): Promise<void>
  /** The connection keeps the process alive only while a statement or `close` is awaited. */
  unref(): void
}

export interface PostgresDatabase extends SqlRunner {
  readonly client: 'pg' | 'postgres.js'
  /** Why a statement may go unanswered although the server is well; undefined if nothing is known. */
  readonly shortage: string | undefined
  /** Commits when `work` resolves, rolls back when it rejects, and rethrows what it threw. */
  transaction<T>(work: TransactionWork<T>, options?: TransactionOptions): Promise<T>
  /** Only with `pg`. Its end is told at once, and it stays one session of the server. */
  dedicated(options?: QueryOptions): Promise<DedicatedConnection>
  /** Listens on a connection of its own, once: `pg` does not re-connect, postgres.js does. */
  listen(channel: string, events: ListenEvents): Promise<Listener>
  /** Whether warnings of the server reach this layer; otherwise a cancelled wait for a standby goes unnoticed. */
  readonly seesWarnings: boolean
  /** Closes the connections beside the client. The client stays the user's, and open. */
  close(): Promise<void>
}

/** `native` is the same transaction as the client library knows it, for statements of the user's own. */
export type TransactionWork<T> = (tx: SqlRunner, native: NativeTransaction) => Promise<T>

export interface TransactionOptions extends QueryOptions {
  readonly isolation?: 'read committed' | 'repeatable read' | 'serializable'
  /** The server ends the transaction when it has been idle for that long; `Infinity` for never. Default 15 s. */
  readonly maxIdleMs?: number
  /**
   * When it aborts before COMMIT is sent, the transaction is undone and rejects at once with its reason, also while `work`
   * is still running. What `work` sends after that does nothing.
   */
  readonly until?: AbortSignal
}

export interface DatabaseOptions {
  /** Stands before the messages of its errors. Default `postgres`. */
  readonly backend?: string
  /**
   * Statements outside of transactions go over a connection beside the pool while the pool has none free. Only with `pg`:
   * a client of postgres.js cannot make another. Default false.
   */
  readonly spare?: boolean
  /** Whether names of statements are used. Only with `pg`: a client of postgres.js has an option of its own. Default true. */
  readonly prepare?: boolean
  readonly clock?: Clock
}

export function postgresDatabase(
  client: PostgresClient,
  { backend = 'postgres', spare = false, prepare = true, clock = systemClock }: DatabaseOptions = {},
): PostgresDatabase {
  if (isPostgresJs(client)) return new PostgresJsDatabase(client, backend)
  if (isPgPool(client)) return new PgDatabase(client, { backend, clock, spare, prepare })
  throw new InvalidArgumentError('client', "must be a Pool of 'pg' or a client of 'postgres' (postgres.js).")
}

const shared = new WeakMap<object, PostgresDatabase>()

/**
 * One adapter for each client, for guards and the like: they have no end of their own at which they could take back a
 * listener, and one for each of them would pile up.
 */
export function sharedDatabase(client: PostgresClient): PostgresDatabase {
  const database = shared.get(client) ?? postgresDatabase(client)
  shared.set(client, database)
  return database
}

/** The options must be an object that has the client, and not the client itself. */
export function checkClientOptions(argument: string, options: unknown): void {
  if (isPgPool(options) || isPostgresJs(options))
    throw new InvalidArgumentError(
      argument,
      'must be an object with a client: pass { client: … } instead of the client.',
    )
  if (typeof options !== 'object' || options === null)
    throw new InvalidArgumentError(argument, 'must be an object with a client.')
}

export function isPostgresJs(client: unknown): client is PostgresJs {
  return typeof client === 'function' && has(client, 'unsafe', 'begin', 'listen')
}

/** A single `Client` has `connect` too, but cannot serve several statements at once. */
export function isPgPool(client: unknown): client is PgPool {
  return (
    typeof client === 'object' &&
    client !== null &&
    has(client, 'connect', 'on', 'end') &&
    'totalCount' in client
  )
}

function has(client: object, ...methods: string[]): boolean {
  return methods.every((method) => typeof (client as Record<string, unknown>)[method] === 'function')
}
