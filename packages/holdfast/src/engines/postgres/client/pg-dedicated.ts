/** A connection of `pg` beside the user's pool, for one user alone. */

import { cancelledCall, unlessAborted } from '../../../base/aborting.ts'
import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import type { DedicatedConnection, Listener, QueryOptions } from './database.ts'
import { asUnavailable } from './failures.ts'
import { poolBeside, runStatement, stateOf } from './pg-connection.ts'
import { PgSockets } from './pg-sockets.ts'
import type { Parameter, PgPool, PgPoolClient, Row } from './types.ts'

export interface DedicatedOptions {
  readonly backend: string
  readonly clock: Clock
  readonly signal?: AbortSignal | undefined
  /** The connection does not keep the process alive, from before the server's first answer on. */
  readonly unref?: boolean
}

export class PgDedicated implements DedicatedConnection, Listener {
  readonly connection: PgPoolClient
  readonly #sockets: PgSockets
  readonly #backend: string
  /** One statement at a time: `pg` warns of those that have to wait in its own queue. */
  #last: Promise<unknown> = Promise.resolve()
  #onEnd: ((error: unknown) => void) | undefined
  #ended: { readonly error: unknown } | undefined
  #closed = false
  /** Whether the process may end while no call waits for an answer. */
  #isUnrefed: boolean
  /** Calls in flight. While there are any, the process lives on: nothing else may keep it alive. */
  #awaited = 0

  private constructor(connection: PgPoolClient, sockets: PgSockets, backend: string, isUnrefed: boolean) {
    this.connection = connection
    this.#sockets = sockets
    this.#backend = backend
    this.#isUnrefed = isUnrefed
    stateOf(connection)
    connection.on('error', (error) => this.#finish(error))
    connection.on('end', () => this.#finish(new Error('the connection ended')))
  }

  /** From a pool of one with the settings of the user's; of a pool that cannot be copied, one of its own. */
  static async open(pool: PgPool, options: DedicatedOptions): Promise<PgDedicated> {
    const { backend, clock, signal, unref = false } = options
    if (signal?.aborted) throw cancelledCall(backend, signal, 'not-applied')
    const sockets = new PgSockets(clock)
    const own = poolBeside(pool, { max: 1, stream: sockets.create })
    const connecting = (own ?? pool).connect()
    if (unref) sockets.hold('unref')
    try {
      const connection = await unlessAborted(connecting, signal, () => {
        connecting.then((late) => late.release(true), ignore)
        sockets.destroy()
        return cancelledCall(backend, signal as AbortSignal, 'not-applied')
      })
      return new PgDedicated(connection, sockets, backend, unref)
    } catch (error) {
      throw asUnavailable(backend, 'no connection', error, 'not-applied')
    }
  }

  query(
    text: string,
    parameters: readonly Parameter[] = [],
    { signal, name }: QueryOptions = {},
  ): Promise<readonly Row[]> {
    const done = this.#last.then(() => {
      if (this.#ended !== undefined || this.#closed)
        throw new BackendUnavailableError(this.#backend, 'the connection has ended', 'not-applied')
      return runStatement(this.connection, this.#backend, text, parameters, signal, name)
    })
    this.#last = done.catch(ignore)
    return this.#keepingAlive(done)
  }

  onEnd(listener: (error: unknown) => void): void {
    this.#onEnd = listener
    if (this.#ended !== undefined) this.#tell(this.#ended.error)
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await this.#keepingAlive(this.#end())
  }

  unref(): void {
    this.#isUnrefed = true
    if (this.#awaited === 0) this.#sockets.hold('unref')
  }

  async #keepingAlive<T>(work: Promise<T>): Promise<T> {
    if (this.#awaited++ === 0 && this.#isUnrefed) this.#sockets.hold('ref')
    try {
      return await work
    } finally {
      if (--this.#awaited === 0 && this.#isUnrefed) this.#sockets.hold('unref')
    }
  }

  async #end(): Promise<void> {
    const ended = this.#ended !== undefined ? Promise.resolve() : this.#untilEnd()
    this.connection.release(true)
    await this.#sockets.endWithin(() => ended)
  }

  #untilEnd(): Promise<void> {
    return new Promise((resolve) => this.connection.on('end', resolve))
  }

  #finish(error: unknown): void {
    if (this.#ended !== undefined) return
    this.#ended = { error }
    this.#tell(error)
  }

  #tell(error: unknown): void {
    const listener = this.#onEnd
    this.#onEnd = undefined
    if (this.#closed || listener === undefined) return
    listener(error)
    void this.close()
  }
}
