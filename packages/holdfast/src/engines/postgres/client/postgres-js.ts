/**
 * `postgres` (postgres.js). It connects, queues and re-connects by itself, so less is known here than with `pg`: a
 * failure counts as `not-applied` only if the server said ERROR or the connection was refused. A statement that was
 * cancelled goes on, and its connection stays taken until the server or TCP ends it.
 *
 * Statements with parameters are prepared if the client prepares statements (its option `prepare`). Behind a pooler in
 * transaction mode it must not, and every statement must have a parameter: postgres.js sends a statement that has none in
 * one piece, and may then send the first half of the next one right behind it. The pooler takes the connection to the server
 * away between the two, and the client waits for ever.
 */

import { cancelledCall, onAborted, unlessStopped } from '../../../base/aborting.ts'
import { afterThisTurn } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import { BackendUnavailableError, InvalidArgumentError, UnsupportedError } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
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
import { asUnavailable, standbySkipped } from './failures.ts'
import { limitIdleSql } from './idle-limit.ts'
import { InFlightLimit } from './in-flight-limit.ts'
import { noticeListenersOf } from './notices.ts'
import { asPlainText } from './plain-text.ts'
import { refusingAfterEnd } from './postgres-js-transaction.ts'
import { isStopped, type Stop, stoppedCall, unlessStop } from './stop.ts'
import type { Parameter, PostgresJs, PostgresJsRunner, Row } from './types.ts'

/** How many connections postgres.js has at most, unless told otherwise. */
const USUAL_MAX = 10

export class PostgresJsDatabase implements PostgresDatabase {
  readonly client = 'postgres.js'
  readonly seesWarnings: boolean
  readonly #sql: PostgresJs
  readonly #backend: string
  readonly #limit: InFlightLimit
  readonly #warnings: Set<() => void> | null
  /** How often a wait for a synchronous standby was cancelled: a statement in flight meanwhile may be affected. */
  #skippedStandbys = 0

  constructor(sql: PostgresJs, backend: string) {
    this.#sql = sql
    this.#backend = backend
    const { max, max_pipeline = 1 } = sql.options as {
      readonly max?: unknown
      readonly max_pipeline?: number
    }
    // Such a client sends BEGIN over a connection that it does not reserve: our statements would run in your transaction.
    if (max_pipeline < 1)
      throw new InvalidArgumentError(
        'client',
        'must have a max_pipeline of at least 1: leave the option out.',
      )
    this.#limit = new InFlightLimit(typeof max === 'number' && max >= 1 ? max : USUAL_MAX)
    this.#warnings = noticeListenersOf(sql.options)
    this.#warnings?.add(this.#onSkippedStandby)
    this.seesWarnings = this.#warnings !== null
  }

  /** postgres.js does not tell whether a statement has been sent. */
  get shortage(): string | undefined {
    const { inFlight, max } = this.#limit
    if (inFlight === 0) return undefined
    return (
      `${inFlight} statements wait in the client. If all ${max} connections are in use, ` +
      'give the locker a client of its own, or raise `max`'
    )
  }

  async query(
    text: string,
    parameters: readonly Parameter[] = [],
    { call, signal }: QueryOptions = {},
  ): Promise<readonly Row[]> {
    const stop = call ?? signal
    const waiting = this.#limit.take(stop, () => stoppedCall(this.#backend, stop, 'not-applied'))
    if (waiting !== undefined) await waiting
    const skipped = this.#skippedStandbys
    const rows = await this.#run(this.#sql, text, parameters, stop, () => this.#limit.giveBack())
    if (skipped !== this.#skippedStandbys) throw standbySkipped(this.#backend)
    return rows
  }

  async transaction<T>(work: TransactionWork<T>, options: TransactionOptions = {}): Promise<T> {
    const { isolation, signal, maxIdleMs = defaults.ttlMs, until } = options
    if (signal?.aborted) throw cancelledCall(this.#backend, signal, 'not-applied')
    let failure: { readonly error: unknown } | undefined
    let result: { readonly value: T } | undefined
    let hasEnded = false
    let commitIsSent = false
    const assertOpen = () => {
      if (hasEnded)
        throw new BackendUnavailableError(this.#backend, 'its connection has ended', 'not-applied')
      if (until?.aborted) throw until.reason
    }
    const run = async (native: PostgresJsRunner): Promise<void> => {
      const sql = refusingAfterEnd(native, assertOpen)
      const limitIdle = limitIdleSql(maxIdleMs)
      // The idle limit is not awaited: it leaves together with the first statement. If it fails, so does that one.
      if (limitIdle !== null) native.unsafe(limitIdle).values().then(ignore, ignore)
      try {
        const query: SqlRunner['query'] = async (text, parameters = [], each = {}) => {
          assertOpen()
          return this.#run(sql, text, parameters, each.signal ?? signal)
        }
        const working = work({ query }, sql)
        const stop = until === undefined ? ignore : onAborted(until, () => undo(native, limitIdle))
        result = { value: await working.finally(stop) }
        assertOpen()
      } catch (error) {
        failure = { error }
        // The end of the connection is told in the same moment as the failure of its statement. postgres.js must not
        // roll back over a connection that has ended: it has given up the transaction, and need not hear of it again.
        await new Promise<void>(afterThisTurn)
        if (hasEnded) return new Promise(() => {})
        throw error
      }
      commitIsSent = true
      await commit(native)
    }
    const skipped = this.#skippedStandbys
    try {
      const running = this.#sql
        .begin(isolation === undefined ? '' : `isolation level ${isolation}`, run)
        .finally(() => {
          hasEnded = true
        })
      await unlessStopped(running, (stop) => onAborted(until, ({ reason }) => commitIsSent || stop(reason)))
    } catch (error) {
      if (failure !== undefined) throw failure.error
      if (commitIsSent) throw asUnavailable(this.#backend, 'the transaction failed', error)
      if ((error as { code?: unknown }).code === 'CONNECTION_CLOSED')
        throw closedBeforeCommit(this.#backend, maxIdleMs, error)
      throw until?.aborted
        ? until.reason
        : asUnavailable(this.#backend, 'the transaction failed', error, 'not-applied')
    }
    if (skipped !== this.#skippedStandbys) throw standbySkipped(this.#backend)
    return (result as unknown as { readonly value: T }).value
  }

  /** A reserved connection does not tell when it ends, and a statement after that ends the process (T51, unheard errors). */
  async dedicated(): Promise<DedicatedConnection> {
    throw new UnsupportedError(
      `${this.#backend}: a client of postgres.js has no connection that tells when it ends. Use a Pool of pg.`,
    )
  }

  async listen(channel: string, events: ListenEvents): Promise<Listener> {
    let closed = false
    const ifOpen = (tell: () => void) => {
      if (!closed) tell()
    }
    // postgres.js listens again by itself whenever its connection has ended, also after a first attempt that failed.
    const listening = Promise.resolve(
      this.#sql.listen(
        channel,
        (payload) => ifOpen(() => events.onNotification(payload)),
        () => ifOpen(events.onListening),
      ),
    )
    listening.catch(ignore)
    return {
      close: async () => {
        closed = true
        // Unlistening may wait for a connection that never comes; nothing is heard of it any more either way.
        listening.then((listener) => listener.unlisten()).catch(ignore)
      },
    }
  }

  async close(): Promise<void> {
    this.#warnings?.delete(this.#onSkippedStandby)
  }

  /** `onDone` is called also when the statement was cancelled before: its connection is taken until then. */
  async #run(
    sql: PostgresJsRunner,
    text: string,
    parameters: readonly Parameter[],
    stop: Stop | undefined,
    onDone: () => void = ignore,
  ): Promise<readonly Row[]> {
    if (isStopped(stop)) {
      onDone()
      throw stoppedCall(this.#backend, stop, 'not-applied')
    }
    try {
      // Without parameters it may be several statements, which cannot be prepared.
      const query =
        parameters.length === 0
          ? sql.unsafe(text)
          : sql.unsafe(text, asPlainText(sql, parameters), { prepare: true })
      const answer = Promise.resolve(query.values())
      answer.then(onDone, onDone)
      return lastOf(await unlessStop(answer, this.#backend, stop))
    } catch (error) {
      throw asUnavailable(this.#backend, 'the statement failed', error)
    }
  }

  readonly #onSkippedStandby = (): void => {
    this.#skippedStandbys++
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

/** Several statements at once answer with a result each. */
function lastOf(rows: readonly unknown[]): readonly Row[] {
  const isOne = 'statement' in rows || 'command' in rows
  return (isOne ? rows : (rows.at(-1) ?? [])) as readonly Row[]
}
