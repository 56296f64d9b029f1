/** A connection of `pg` beside the pool, for one user alone. */
import { BackendUnavailableError } from '../../base/errors.ts'
import type { DedicatedConnection, Listener, QueryOptions } from './database.ts'
import { runStatement } from './pg-statement.ts'
import type { Parameter, PgConnection, Row } from './types.ts'

const ignore = () => {}

export class PgDedicated implements DedicatedConnection, Listener {
  readonly reportsItsEnd = true
  readonly #connection: PgConnection
  readonly #end: () => Promise<void>
  readonly #backend: string
  /** One statement at a time: `pg` warns of those that have to wait in its own line. */
  readonly #line: (() => void)[] = []
  #isBusy = false
  #onEnd: ((error: unknown) => void) | undefined
  #ended: { readonly error: unknown } | undefined
  #closed = false
  /** Whether the process may end while nobody waits for an answer. */
  #isUnrefed = false
  /** Calls that somebody waits for. While there are any, the process lives on: nothing else may keep it alive. */
  #awaited = 0

  constructor(connection: PgConnection, end: () => Promise<void>, backend: string) {
    this.#connection = connection
    this.#end = end
    this.#backend = backend
    connection.on('error', (error) => this.#finish(error))
    connection.on('end', () => this.#finish(new Error('the connection ended')))
  }

  async query(
    text: string,
    parameters: readonly Parameter[] = [],
    { signal, name }: QueryOptions = {},
  ): Promise<readonly Row[]> {
    return this.#keepingAlive(() => this.#query(text, parameters, signal, name))
  }

  async #query(
    text: string,
    parameters: readonly Parameter[],
    signal: AbortSignal | undefined,
    name: string | undefined,
  ): Promise<readonly Row[]> {
    this.#assertOpen()
    if (this.#isBusy) {
      await new Promise<void>((takeTurn) => this.#line.push(takeTurn))
      if (this.#ended !== undefined || this.#closed) this.#passOn()
      this.#assertOpen()
    }
    this.#isBusy = true
    try {
      return await runStatement(this.#connection, this.#backend, text, parameters, signal, name)
    } finally {
      this.#passOn()
    }
  }

  #assertOpen(): void {
    if (this.#ended !== undefined || this.#closed)
      throw new BackendUnavailableError(this.#backend, 'the connection has ended', 'not-applied')
  }

  #passOn(): void {
    const next = this.#line.shift()
    if (next === undefined) this.#isBusy = false
    else next()
  }

  onEnd(listener: (error: unknown) => void): void {
    this.#onEnd = listener
    if (this.#ended !== undefined) this.#tell(this.#ended.error)
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    // It may have ended before; what matters is that it has.
    await this.#keepingAlive(() => this.#end().catch(ignore))
  }

  unref(): void {
    this.#isUnrefed = true
    if (this.#awaited === 0) this.#hold('unref')
  }

  async #keepingAlive<T>(work: () => Promise<T>): Promise<T> {
    if (this.#awaited++ === 0 && this.#isUnrefed) this.#hold('ref')
    try {
      return await work()
    } finally {
      if (--this.#awaited === 0 && this.#isUnrefed) this.#hold('unref')
    }
  }

  #hold(how: 'ref' | 'unref'): void {
    ;(this.#connection as { ref?: () => void; unref?: () => void })[how]?.()
  }

  #finish(error: unknown): void {
    if (this.#ended !== undefined) return
    this.#ended = { error }
    this.#tell(error)
  }

  #tell(error: unknown): void {
    const listener = this.#onEnd
    this.#onEnd = undefined
    if (!this.#closed) listener?.(error)
    if (listener !== undefined && !this.#closed) this.#end().catch(ignore)
  }
}
