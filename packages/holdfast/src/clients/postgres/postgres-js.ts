/**
 * `postgres` (postgres.js). It connects, queues and re-connects by itself, so less is known here than with `pg`: a
 * failure counts as `not-applied` only if the server said ERROR or the connection was refused. A statement that was
 * cancelled goes on, and its connection stays taken until the server or TCP ends it. (postgres.js could ask the server
 * to cancel it; but it does not keep the connection for itself until the request has arrived, which may then hit a
 * statement of somebody else's.)
 *
 * Behind a pooler in transaction mode, give every statement a parameter. postgres.js sends a statement that has none in one
 * piece, and may then send the first half of the next one right behind it on the same connection; the pooler takes
 * the connection to the server away between the two, the answer to the half goes nowhere, and the client waits for ever.
 */
import { onAborted } from '../../base/aborting.ts'
import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
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
import { asUnavailable } from './failures.ts'
import { limitIdleSql } from './idle-limit.ts'
import { mortalTransaction } from './mortal-transaction.ts'
import { noticeListenersOf } from './notices.ts'
import { inOneRoundTrip } from './one-round-trip.ts'
import { Places } from './places.ts'
import { ReservationLine } from './reserving.ts'
import type {
  Parameter,
  PostgresJs,
  PostgresJsConnection,
  PostgresJsReserved,
  PostgresJsRunner,
  Row,
} from './types.ts'

/** How many connections postgres.js has at most, unless told otherwise. */
const USUAL_MAX = 10

const ignore = () => {}
const NEVER = new AbortController().signal

export class PostgresJsDatabase implements PostgresDatabase {
  readonly client = 'postgres.js'
  readonly #sql: PostgresJs
  readonly #backend: string
  readonly #warnings: Set<() => void> | null
  readonly #places: Places
  readonly #max: number
  /** Given to postgres.js, which has not sent them: it has no connection for them. */
  readonly #unsent = new Set<symbol>()

  constructor(sql: PostgresJs, backend: string) {
    this.#sql = sql
    this.#backend = backend
    this.#warnings = noticeListenersOf(sql.options)
    const { max } = sql.options as { readonly max?: unknown }
    this.#max = typeof max === 'number' && max >= 1 ? max : USUAL_MAX
    this.#places = new Places(this.#max)
  }

  get shortage(): string | undefined {
    const { size } = this.#unsent
    if (size === 0) return undefined
    return (
      `${size} statements wait in the client: all ${this.#max} connections are in use, or it cannot connect: ` +
      'give the locker a client of its own, or raise `max`'
    )
  }

  get seesWarnings(): boolean {
    return this.#warnings !== null
  }

  async query(
    text: string,
    parameters: readonly Parameter[] = [],
    options: QueryOptions = {},
  ): Promise<readonly Row[]> {
    const { signal } = options
    const waiting = this.#places.take(signal, () =>
      cancelledCall(this.#backend, 'not-applied', signal as AbortSignal),
    )
    if (waiting !== undefined) await waiting
    const statement = Symbol()
    const onSent = () => void this.#unsent.delete(statement)
    const onDone = () => {
      onSent()
      this.#places.giveBack()
    }
    if (parameters.length > 0) this.#unsent.add(statement)
    const how = { signal, whole: this.#sql, onDone, onSent }
    return this.#watched(() => runStatement(this.#sql, this.#backend, text, parameters, how))
  }

  async transaction<T>(work: TransactionWork<T>, options: TransactionOptions = {}): Promise<T> {
    const { isolation, signal, maxIdleMs = defaults.ttlMs, until } = options
    if (signal?.aborted) throw cancelledCall(this.#backend, 'not-applied', signal)
    let failure: { readonly error: unknown } | undefined
    let result: { readonly value: T } | undefined
    let hasEnded = false
    let commitIsSent = false
    const assertAlive = () => {
      if (hasEnded)
        throw new BackendUnavailableError(this.#backend, 'its connection has ended', 'not-applied')
      if (until?.aborted) throw until.reason
    }
    const run = async (native: PostgresJsRunner): Promise<void> => {
      const sql = mortalTransaction(native, assertAlive)
      const limitIdle = limitIdleSql(maxIdleMs)
      // Not awaited: it leaves together with the first statement. If it fails, so does that one.
      if (limitIdle !== null) native.unsafe(limitIdle).values().then(ignore, ignore)
      try {
        const query: SqlRunner['query'] = async (text, parameters = [], each = {}) => {
          assertAlive()
          return runStatement(sql, this.#backend, text, parameters, { signal: each.signal ?? signal })
        }
        const working = work({ query }, sql)
        const stop = until === undefined ? ignore : onAborted(until, () => undo(native, limitIdle))
        result = { value: await working.finally(stop) }
        assertAlive()
      } catch (error) {
        failure = { error }
        // The end of the connection is told in the same moment as the failure of its statement. postgres.js must not
        // roll back over a connection that has ended: it has given up the transaction, and need not hear of it again.
        await new Promise((resolve) => setImmediate(resolve))
        if (hasEnded) return new Promise(() => {})
        throw error
      }
      commitIsSent = true
      await commit(native)
    }
    try {
      const running = this.#watched(() =>
        this.#sql.begin(isolation === undefined ? '' : `isolation level ${isolation}`, run).finally(() => {
          hasEnded = true
        }),
      )
      const ended = Promise.withResolvers<never>()
      const stop = onAborted(until ?? NEVER, () => {
        if (!commitIsSent) ended.reject(until?.reason)
      })
      await Promise.race([running, ended.promise]).finally(stop)
    } catch (error) {
      if (failure !== undefined) throw failure.error
      if (commitIsSent) throw asUnavailable(this.#backend, 'the transaction failed', error)
      if ((error as { code?: unknown }).code === 'CONNECTION_CLOSED')
        throw closedBeforeCommit(this.#backend, maxIdleMs, error)
      throw until?.aborted
        ? until.reason
        : asUnavailable(this.#backend, 'the transaction failed', error, 'not-applied')
    }
    return (result as unknown as { readonly value: T }).value
  }

  async dedicated({ signal }: QueryOptions = {}): Promise<DedicatedConnection> {
    const reserved = await this.#reserve(signal)
    return ReservedConnection.over(reserved, this.#backend, (run) => this.#watched(run))
  }

  async #reserve(signal: AbortSignal | undefined): Promise<PostgresJsReserved> {
    if (signal?.aborted) throw cancelledCall(this.#backend, 'not-applied', signal)
    try {
      return await ReservationLine.of(this.#sql).take(signal, () =>
        cancelledCall(this.#backend, 'not-applied', signal as AbortSignal),
      )
    } catch (error) {
      throw asUnavailable(this.#backend, 'no connection', error, 'not-applied')
    }
  }

  async listen(channel: string, events: ListenEvents): Promise<Listener> {
    let closed = false
    const ifOpen = (tell: () => void) => {
      if (!closed) tell()
    }
    // It listens again by itself whenever its connection has ended, also after a first attempt that failed.
    const listening = Promise.resolve(
      this.#sql.listen(
        channel,
        (payload) => ifOpen(() => events.onNotification(payload)),
        () => ifOpen(events.onListening),
      ),
    )
    listening.catch(() => {})
    return {
      close: async () => {
        closed = true
        // Unlistening may wait for a connection that never comes; nobody listens to it any more either way.
        listening.then((listener) => listener.unlisten()).catch(() => {})
      },
    }
  }

  async close(): Promise<void> {}

  async #watched<T>(run: () => Promise<T>): Promise<T> {
    if (this.#warnings === null) return run()
    let standbySkipped = false
    const onWarning = () => {
      standbySkipped = true
    }
    this.#warnings.add(onWarning)
    try {
      const result = await run()
      if (standbySkipped)
        throw new BackendUnavailableError(
          this.#backend,
          'the wait for the synchronous standby was cancelled',
          'unknown',
        )
      return result
    } finally {
      this.#warnings.delete(onWarning)
    }
  }
}

type Watched = <T>(run: () => Promise<T>) => Promise<T>

/**
 * postgres.js does not say when a reserved connection ends, and forgets the statements that wait for their turn on it. A
 * statement after the end is written to a socket that is gone, and the error of that ends the process (T51). So we hook
 * into the connection, as its own `begin` does, and nothing is sent after the end.
 */
class ReservedConnection implements DedicatedConnection {
  readonly #reserved: PostgresJsReserved
  readonly #backend: string
  readonly #watched: Watched
  readonly #pending = new Set<(error: unknown) => void>()
  #reportsItsEnd = false
  #onEnd: ((error: unknown) => void) | undefined
  #ended: { readonly error: unknown } | undefined
  #closed = false

  private constructor(reserved: PostgresJsReserved, backend: string, watched: Watched) {
    this.#reserved = reserved
    this.#backend = backend
    this.#watched = watched
  }

  static async over(
    reserved: PostgresJsReserved,
    backend: string,
    watched: Watched,
  ): Promise<ReservedConnection> {
    const made = new ReservedConnection(reserved, backend, watched)
    const onexecute = (connection: PostgresJsConnection) => {
      made.#reportsItsEnd = true
      connection.onclose = (error) => made.#finish(error)
    }
    try {
      await reserved.unsafe('SELECT 1', [], { onexecute }).values()
    } catch (error) {
      throw asUnavailable(backend, 'no connection', error, 'not-applied')
    }
    return made
  }

  get reportsItsEnd(): boolean {
    return this.#reportsItsEnd
  }

  query(
    text: string,
    parameters: readonly Parameter[] = [],
    { signal, name }: QueryOptions = {},
  ): Promise<readonly Row[]> {
    return this.#unlessEnded(() =>
      this.#watched(() =>
        runStatement(this.#reserved, this.#backend, text, parameters, {
          signal,
          prepare: name !== undefined,
        }),
      ),
    )
  }

  onEnd(listener: (error: unknown) => void): void {
    this.#onEnd = listener
    if (this.#ended !== undefined) this.#tell(this.#ended.error)
  }

  async close(): Promise<void> {
    if (this.#closed) return
    try {
      // It cannot be ended from here, and what its session has must not pass on to others.
      const leaving = this.#unlessEnded(() => runStatement(this.#reserved, this.#backend, LEAVE_NOTHING, []))
      this.#closed = true
      await leaving
      if (this.#ended === undefined) this.#reserved.release()
    } catch {
      // It has ended. postgres.js has taken it back by itself, and must not be given it a second time.
    }
  }

  unref(): void {
    // The client is the user's, and ends when the user says so.
  }

  #unlessEnded<T>(run: () => Promise<T>): Promise<T> {
    if (this.#ended !== undefined || this.#closed)
      return Promise.reject(
        new BackendUnavailableError(this.#backend, 'the connection has ended', 'not-applied'),
      )
    return new Promise<T>((resolve, reject) => {
      this.#pending.add(reject)
      run()
        .then(resolve, reject)
        .finally(() => this.#pending.delete(reject))
    })
  }

  #finish(error: unknown): void {
    if (this.#ended !== undefined) return
    this.#ended = { error }
    // Those in flight are told by postgres.js, and with more detail.
    queueMicrotask(() => {
      for (const reject of this.#pending)
        reject(asUnavailable(this.#backend, 'the connection has ended', error, 'unknown'))
    })
    this.#tell(error)
  }

  #tell(error: unknown): void {
    const listener = this.#onEnd
    this.#onEnd = undefined
    if (!this.#closed) listener?.(error)
  }
}

/**
 * Its own COMMIT is a named prepared statement. Behind a pooler the name may be unknown to the server: that error ends the
 * transaction, postgres.js repeats the COMMIT, and the COMMIT of a failed transaction succeeds and undoes everything. So
 * we commit by a plain statement, and leave it an empty transaction to end.
 */
async function commit(sql: PostgresJsRunner): Promise<void> {
  const [first] = (await sql.unsafe('COMMIT; BEGIN').values()) as readonly { readonly command?: string }[]
  if (first?.command === 'ROLLBACK')
    throw new BackendUnavailableError('postgres', 'an error had ended the transaction before', 'not-applied')
}

/**
 * Undoes a transaction whose work is still running, and leaves an empty one: postgres.js rolls it back when the work is
 * over. If the work hangs, the server ends it at the same limit. Not a failed one: it would lose the limit.
 */
function undo(sql: PostgresJsRunner, limitIdle: string | null): void {
  const empty = 'BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY'
  const text = limitIdle === null ? `ROLLBACK; ${empty}` : `ROLLBACK; ${empty}; ${limitIdle}`
  sql.unsafe(text).values().then(ignore, ignore)
}

/** postgres.js drops the last word of the server, so why it closed the connection is not known. */
function closedBeforeCommit(backend: string, maxIdleMs: number, cause: unknown): BackendUnavailableError {
  const why =
    'A server does that to a transaction that is idle for longer than its limit, because the process was paused or ' +
    `waited for something else: Holdfast sets ${maxIdleMs} ms (maxIdleMs)`
  const ended = 'the connection ended during the transaction'
  const what = limitIdleSql(maxIdleMs) === null ? ended : `${ended}. ${why}`
  return new BackendUnavailableError(backend, what, 'not-applied', { cause })
}

const LEAVE_NOTHING = 'SELECT pg_advisory_unlock_all(); UNLISTEN *; RESET ALL'

interface StatementOptions {
  readonly signal?: AbortSignal | undefined
  readonly prepare?: boolean
  /** The client, if the statement may go in one piece. */
  readonly whole?: object
  /** Also when it was cancelled before: its connection is taken until then. */
  readonly onDone?: () => void
  /** Only of a statement in one piece. */
  readonly onSent?: () => void
}

async function runStatement(
  sql: PostgresJsRunner,
  backend: string,
  text: string,
  parameters: readonly Parameter[],
  { signal, prepare = false, whole, onDone = ignore, onSent = ignore }: StatementOptions = {},
): Promise<readonly Row[]> {
  if (signal?.aborted) {
    onDone()
    throw cancelledCall(backend, 'not-applied', signal)
  }
  try {
    const answer =
      whole !== undefined && parameters.length > 0
        ? inOneRoundTrip(whole, sql, text, parameters, onSent)
        : Promise.resolve(
            (parameters.length === 0
              ? sql.unsafe(text)
              : sql.unsafe(text, [...parameters], { prepare })
            ).values(),
          )
    answer.then(onDone, onDone)
    const rows = await orAborted(answer, signal, () =>
      cancelledCall(backend, 'unknown', signal as AbortSignal),
    )
    return lastOf(rows)
  } catch (error) {
    throw asUnavailable(backend, 'the statement failed', error)
  }
}

/** Several statements at once answer with a result each. */
function lastOf(rows: readonly unknown[]): readonly Row[] {
  const isOne = 'statement' in rows || 'command' in rows
  return (isOne ? rows : (rows.at(-1) ?? [])) as readonly Row[]
}
