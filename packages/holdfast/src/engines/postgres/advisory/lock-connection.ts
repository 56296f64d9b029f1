/**
 * A connection of our own, in whose session the server keeps locks. It is the lease: the server ends it when it has heard
 * nothing for a TTL (`idle_session_timeout`), and with it everything that it holds.
 *
 *   opening ──set up──▶ open ──close──▶ ended        what it holds is given up first
 *   open ──it ends by itself | a statement fails | it runs in another session──▶ ended
 *
 * A statement that fails leaves it unknown what the session has, because advisory locks do not roll back. So every failure
 * ends the connection, but for those of statements that are made good at once (`tryToRun`). A statement that was sent is never cancelled:
 * it goes on, and those behind it keep their order.
 */

import { onAborted } from '../../../base/aborting.ts'
import { BackendUnavailableError, InvalidArgumentError } from '../../../base/errors.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { ignore } from '../../../base/ignore.ts'
import { settledWithin } from '../../../base/within.ts'
import type { Call, SessionRequest } from '../../../spi.ts'
import { type DedicatedConnection, outcomeOf, type Parameter, type Row, sqlStateOf } from '../client/index.ts'
import { type Connection, NAME } from './connection.ts'
import { keyOfId } from './keys.ts'
import type { Statement } from './statements.ts'

/** How long the server may take to answer before the end of the connection has to say it. */
const LEAVE_WITHIN_MS = 1_000

export class LockConnection {
  /** The key of the lock by which others see that it lives. */
  readonly key: string
  readonly #connection: Connection
  readonly #dedicated: DedicatedConnection
  #onEnd: (() => void) | undefined
  #hasEnded = false

  private constructor(connection: Connection, dedicated: DedicatedConnection, key: string) {
    this.#connection = connection
    this.#dedicated = dedicated
    this.key = key
    dedicated.onEnd(() => this.#finish())
  }

  /** The id is secret: a client that knows it could pretend that the connection lives. */
  static async open(
    connection: Connection,
    { id, ttlMs, holder }: SessionRequest,
    call: Call,
  ): Promise<LockConnection> {
    const { database, namespace, sql, lifetime } = connection
    const stop = new AbortController()
    const untie = lifetime.onCut(call, (error) => stop.abort(error))
    const dedicated = await database.dedicated({ signal: stop.signal }).catch((error: unknown) => {
      untie()
      throw error
    })
    const opened = new LockConnection(connection, dedicated, keyOfId(id))
    const { key } = opened
    // A statement that hangs would otherwise keep the opening, and with it the end of the backend, for as long as it does.
    const stopDropping = onAborted(stop.signal, () => opened.drop())
    try {
      const [row] = await opened.run(sql.open, [key, ttlMs])
      if (row?.[0] === 'taken')
        throw new InvalidArgumentError(
          'id',
          'is that of a session which has a connection already. No other can go on with it.',
        )
      await opened.run(sql.sweep, [key])
      await opened.run(sql.register, [key, namespace, publicIdOf(id), holder, ttlMs])
      if (stop.signal.aborted) throw stop.signal.reason
      dedicated.unref()
      return opened
    } catch (error) {
      await opened.close()
      throw stop.signal.aborted ? stop.signal.reason : error
    } finally {
      stopDropping()
      untie()
    }
  }

  /** At most once, when it ends without `close`; at once if it has ended. */
  onEnd(listener: () => void): void {
    this.#onEnd = listener
    if (this.#hasEnded) listener()
  }

  /** Statements run in the order in which they came. */
  async run(statement: Statement, parameters: readonly Parameter[]): Promise<readonly Row[]> {
    return this.#run(statement, parameters).catch((error: unknown) => {
      this.drop()
      throw error
    })
  }

  /** For a statement whose failure does not leave it unknown what the session has: it answers with the server's ERROR. */
  tryToRun(statement: Statement, parameters: readonly Parameter[]): Promise<readonly Row[] | Error> {
    return this.#run(statement, parameters).catch((error: unknown) => {
      const cause = error instanceof Error ? error.cause : undefined
      if (cause instanceof Error && sqlStateOf(cause) !== null && outcomeOf(cause) === 'not-applied')
        return cause
      this.drop()
      throw error
    })
  }

  async #run({ text, name }: Statement, parameters: readonly Parameter[]): Promise<readonly Row[]> {
    this.#connection.statistics.statements++
    const rows = await this.#dedicated.query(text, parameters, name === undefined ? {} : { name })
    if (rows[0]?.[0] !== 'gone') return rows
    throw new BackendUnavailableError(
      NAME,
      'the connection reached another session of the server than before: it was replaced, or there is a pooler in ' +
        'between, and what the session held is lost',
      'not-applied',
    )
  }

  /** Gives up all that it holds, and ends: afterwards the server has nothing of it, unless it cannot be reached. */
  async close(): Promise<void> {
    // If the server does not get this, the end of the connection says the same.
    if (!this.#hasEnded) {
      const { clock, sql } = this.#connection
      const leaving = this.run(sql.leave, [this.key])
      await settledWithin(clock, LEAVE_WITHIN_MS, leaving, { keepsProcessAlive: true }).catch(ignore)
    }
    this.#hasEnded = true
    await this.#dedicated.close()
  }

  /** Without waiting for the server, which notices the end of the connection. */
  drop(): void {
    this.#finish()
    void this.#dedicated.close()
  }

  #finish(): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#onEnd?.()
  }
}
