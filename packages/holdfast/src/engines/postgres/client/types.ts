/**
 * The few methods that Holdfast uses of the clients that people have: `pg` and `postgres` (postgres.js). Structural, so
 * that any compatible client will do and neither has to be installed for the types.
 */

/** Parameters of a statement. Larger numbers go as text: both clients would lose digits above 2^53. */
export type Parameter = string | number | boolean | null

/**
 * The columns of a row, in the order of the statement. By position and not by name, because both clients can be told to
 * rename columns. What must not depend on a user's type parsers is cast to `text` in the statement.
 */
export type Row = readonly unknown[]

/** A message of the server that is not an error. */
export interface Notice {
  readonly code?: string | undefined
  readonly message?: string | undefined
  /** The function of the server that spoke: the one part that no setting translates. */
  readonly routine?: string | undefined
}

export interface PgQuery {
  readonly text: string
  name?: string
  values?: Parameter[]
  readonly rowMode: 'array'
}

export interface PgNotification {
  readonly channel: string
  readonly payload?: string | undefined
}

/** A connection of `pg`: a `Client`, or what a `Pool` hands out. */
export interface PgConnection {
  query(query: PgQuery): Promise<unknown>
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'notice', listener: (notice: Notice) => void): unknown
  on(event: 'notification', listener: (message: PgNotification) => void): unknown
  on(event: 'end', listener: () => void): unknown
}

export interface PgPoolClient extends PgConnection {
  release(destroy?: Error | boolean): void
}

/** `Pool` of `pg`. */
export interface PgPool {
  /** How many connections it has, how many of them are free, and how many calls wait for one. */
  readonly totalCount?: number
  readonly idleCount?: number
  readonly waitingCount?: number
  /** Options with which it was made: Holdfast makes connections beside the pool in the same way. */
  readonly options?: { readonly password?: unknown }
  connect(): Promise<PgPoolClient>
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'acquire', listener: (connection: PgConnection) => void): unknown
  end(): Promise<void>
}

/** Runners of statements in postgres.js: the client, a transaction, or a reserved connection. */
export interface PostgresJsRunner {
  unsafe(query: string, parameters?: Parameter[], options?: { prepare?: boolean }): PostgresJsQuery
}

export interface PostgresJsQuery {
  values(): PromiseLike<readonly unknown[]>
}

/** The client of postgres.js. */
export interface PostgresJs extends PostgresJsRunner {
  readonly options: object
  begin<T>(options: string, work: (tx: PostgresJsRunner) => Promise<T>): Promise<unknown>
  listen(
    channel: string,
    onNotify: (payload: string) => void,
    onListen?: () => void,
  ): PromiseLike<{ unlisten(): Promise<void> }>
  end(options?: { timeout?: number }): Promise<void>
}

export type PostgresClient = PgPool | PostgresJs

/** A transaction as the client library has it. */
export type NativeTransaction = PgPoolClient | PostgresJsRunner
