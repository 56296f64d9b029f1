/**
 * One connection beside the user's pool, for a locker's statements that find none free in it: the user's own transactions
 * may have them all, and wait for the locker (T85). It is opened when it is first needed, and then kept.
 */
import { type Clock, systemClock } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import { BackendUnavailableError, ClosedError, isHoldfastError } from '../../base/errors.ts'
import { cancelledCall, orAborted } from './cancelling.ts'
import type { DedicatedConnection, QueryOptions } from './database.ts'
import type { Parameter, Row } from './types.ts'

/** Ends the opening when its signal aborts. */
type Open = (signal: AbortSignal) => Promise<DedicatedConnection>

/** A server that accepts and says nothing would keep the slot for ever. */
const OPEN_WITHIN_MS = defaults.callTimeoutMs

export class SpareConnection {
  readonly #backend: string
  readonly #open: Open
  readonly #clock: Clock
  #current: Promise<DedicatedConnection> | undefined
  #endOpening: (reason: Error) => void = () => {}

  constructor(backend: string, open: Open, clock: Clock = systemClock) {
    this.#backend = backend
    this.#open = open
    this.#clock = clock
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
        cancelledCall(this.#backend, 'not-applied', signal as AbortSignal),
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
    this.#endOpening(new ClosedError(`The ${this.#backend} client`))
    if (this.#current !== undefined) await this.#drop(this.#current)
  }

  #opened(): Promise<DedicatedConnection> {
    const ended = new AbortController()
    this.#endOpening = (reason) => ended.abort(reason)
    const timer = this.#clock.setTimer(OPEN_WITHIN_MS, () =>
      ended.abort(new Error(`the server did not answer within ${OPEN_WITHIN_MS} ms`)),
    )
    const opening = this.#open(ended.signal)
      .catch((error: unknown) => {
        throw ended.signal.aborted ? ended.signal.reason : error
      })
      .finally(() => timer.cancel())
      .then((connection) => {
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
