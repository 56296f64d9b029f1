/**
 * One connection beside the user's pool, for a locker's statements that find none free in it: the user's own transactions
 * may have them all, and wait for the locker (T85). It is opened when it is first needed, and then kept.
 */
import { BackendUnavailableError, isHoldfastError } from '../../core/errors.ts'
import { calledOff, orAborted } from './cancelling.ts'
import type { DedicatedConnection, QueryOptions } from './database.ts'
import type { Parameter, Row } from './types.ts'

export class SpareConnection {
  readonly #backend: string
  readonly #open: () => Promise<DedicatedConnection>
  #current: Promise<DedicatedConnection> | undefined

  constructor(backend: string, open: () => Promise<DedicatedConnection>) {
    this.#backend = backend
    this.#open = open
  }

  /** `shortage` says why the pool was of no use. */
  async query(
    text: string,
    parameters: readonly Parameter[],
    options: QueryOptions,
    shortage: () => string,
  ): Promise<readonly Row[]> {
    const { signal } = options
    this.#current ??= this.#opened()
    const opening = this.#current
    let connection: DedicatedConnection
    try {
      connection = await orAborted(opening, signal, () =>
        calledOff(this.#backend, 'not-applied', signal as AbortSignal),
      )
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      const what = `${shortage()}, and another connection could not be opened: ${why}`
      throw new BackendUnavailableError(this.#backend, what, 'not-applied', { cause: error })
    }
    try {
      return await connection.query(text, parameters, options)
    } catch (error) {
      // One that has not answered is still at work: the next statement would wait behind it.
      const isUnknown = isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown'
      if (isUnknown) this.#drop(opening)
      throw error
    }
  }

  async close(): Promise<void> {
    if (this.#current !== undefined) await this.#drop(this.#current)
  }

  #opened(): Promise<DedicatedConnection> {
    const opening = this.#open().then((connection) => {
      connection.onEnd(() => void this.#drop(opening))
      connection.unref()
      return connection
    })
    opening.catch(() => this.#drop(opening))
    return opening
  }

  async #drop(opening: Promise<DedicatedConnection>): Promise<void> {
    if (this.#current === opening) this.#current = undefined
    await opening.then(
      (connection) => connection.close(),
      () => {},
    )
  }
}
