/**
 * A client's state, by its events: whether it is connected, why it is not, and how often it may have lost a
 * connection. One set of listeners for each client, while anything watches it.
 *
 * It listens in a way that does not count as listening to `error`: a user without a listener of their own learns of errors as
 * before (T51, unheard errors). Only `handleErrors` changes that.
 */

import { errorMonitor } from 'node:events'
import { ignore } from '../../../base/ignore.ts'
import type { RedisClient } from './client.ts'
import { reasonOf } from './failures.ts'

/** The emitter that both libraries have in common. */
interface Emitter {
  readonly status?: string
  readonly isOpen?: boolean
  readonly isReady?: boolean
  /** ioredis: the last connection that was tried. */
  readonly stream?: { readonly errored?: unknown }
  on?(event: string | symbol, listener: (...args: unknown[]) => void): unknown
  off?(event: string | symbol, listener: (...args: unknown[]) => void): unknown
  connect?(): Promise<unknown>
}

export interface ClientWatcher {
  /** The client can send now, for the first time or again. */
  onReady?(): void
  /** An error, in the library's own words. */
  onError?(reason: string): void
  /** A try to connect failed, or a connection ended. */
  onFailed?(error: unknown): void
  /** A connection of ioredis has closed. */
  onClosed?(): void
}

/**
 * `close`: ioredis. `-node`, `node error`: a Cluster of ioredis. `reconnecting`: node-redis. A false alarm only turns `not-held` into `unknown`.
 */
const signsOfLoss = ['close', '-node', 'node error', 'reconnecting', errorMonitor]

const states = new WeakMap<RedisClient, ClientState>()

export class ClientState {
  readonly #client: Emitter
  readonly #watchers = new Set<ClientWatcher>()
  #hasErrorHandler = false
  #lastError: unknown
  /**
   * Goes up whenever a connection may have been lost. ioredis sends unanswered commands again after it has reconnected (a
   * `Cluster` of node-redis does as well), so an answer may be that of a second copy.
   */
  lossCount = 0

  private constructor(client: Emitter) {
    this.#client = client
  }

  static of(client: RedisClient): ClientState {
    let state = states.get(client)
    if (state === undefined) {
      state = new ClientState(client as Emitter)
      states.set(client, state)
    }
    return state
  }

  /** True if a command leaves at once. */
  get isReady(): boolean {
    const { status, isReady, isOpen } = this.#client
    return status === undefined ? (isReady ?? isOpen ?? true) : status === 'ready'
  }

  /** Waiting makes no sense: the client is not ready, and was closed, or was never told to connect. */
  get isClosed(): boolean {
    const { status, isOpen } = this.#client
    return status === undefined ? isOpen === false : status === 'end'
  }

  /** Why it is not connected; undefined where that is not known. */
  get trouble(): unknown {
    return this.#lastError ?? this.#client.stream?.errored ?? undefined
  }

  /** For a client of ioredis that connects when it is first used. */
  wake(): void {
    // Watchers are told by events what becomes of it.
    if (this.#client.status === 'wait') this.#client.connect?.().catch(ignore)
  }

  /** From now on a server that cannot be reached does not end the process, also if the user has no listener (T51, unheard errors). */
  handleErrors(): void {
    if (this.#hasErrorHandler) return
    this.#hasErrorHandler = true
    this.#client.on?.('error', () => {})
  }

  /** Call the result to stop. */
  watch(watcher: ClientWatcher): () => void {
    if (this.#watchers.size === 0) {
      this.#lastError = undefined
      for (const [event, listener] of this.#listeners) this.#client.on?.(event, listener)
    }
    this.#watchers.add(watcher)
    return () => {
      if (!this.#watchers.delete(watcher) || this.#watchers.size > 0) return
      for (const [event, listener] of this.#listeners) this.#client.off?.(event, listener)
    }
  }

  readonly #onReady = (): void => {
    this.#lastError = undefined
    for (const watcher of [...this.#watchers]) watcher.onReady?.()
  }

  readonly #onError = (error: unknown): void => {
    this.#lastError = error
    for (const watcher of [...this.#watchers]) {
      watcher.onError?.(reasonOf(error))
      watcher.onFailed?.(error)
    }
  }

  /** ioredis tells an error without a listener only to its own log; but it tells that the connection has ended. */
  readonly #onEnd = (): void => {
    for (const watcher of [...this.#watchers]) watcher.onFailed?.(this.trouble)
  }

  readonly #onClosed = (): void => {
    for (const watcher of [...this.#watchers]) watcher.onClosed?.()
  }

  readonly #listeners: readonly (readonly [string | symbol, (...args: unknown[]) => void])[] = [
    ...signsOfLoss.map((event) => [event, () => void this.lossCount++] as const),
    ['ready', this.#onReady],
    [errorMonitor, this.#onError],
    ['close', this.#onEnd],
    ['close', this.#onClosed],
    ['end', this.#onEnd],
  ]
}
