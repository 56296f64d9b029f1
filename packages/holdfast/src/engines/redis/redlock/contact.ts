/**
 * Whether a node can be asked: the state of the connection to it. Connecting and the handshake have a limit of their own, which
 * is paid once.
 *
 *   untried ──connected──▶ open                                     [#enter]
 *   untried ──its first try fails, or the limit is over──▶ away     [#leave]   not asked until it is connected
 *   open ──found to be disconnected──▶ lost                         [reach]    it may be back in an instant
 *   lost ──connected──▶ open
 *   lost ──a try to reconnect fails, or one time-out is over──▶ away
 *   away ──connected──▶ open
 *
 * So a node that refuses connections costs no time. One that does not answer them costs the limit once, and only one time-out
 * when a majority is connected (`shortenWait`). What was not asked has certainly not been applied.
 */

import type { Clock, Timer } from '../../../base/clock.ts'
import { ignore } from '../../../base/ignore.ts'
import type { ClientState } from '../client/index.ts'

export interface ContactOptions {
  readonly readiness: ClientState
  readonly clock: Clock
  /** For the first connection. */
  readonly connectTimeoutMs: number
  /** To come back after a loss, and for a node that a majority can do without. */
  readonly nodeTimeoutMs: number
}

export interface ContactHandlers {
  /** Sends what comes first on a connection, and waits for no answer. */
  onConnected(): Promise<void>
  /** The node can be asked, for the first time or again. */
  onOpen(): void
  failure(reason: string): Error
}

interface Wait {
  readonly promise: Promise<void>
  readonly resolve: () => void
  readonly reject: (error: Error) => void
  timer: Timer
}

export class Contact {
  readonly #options: ContactOptions
  readonly #handlers: ContactHandlers
  readonly #unwatch: () => void
  #state: 'untried' | 'open' | 'lost' | 'away' = 'untried'
  #limitMs: number
  #wait: Wait | undefined
  #entering: Promise<void> | undefined
  /** The client's last message about why it is not connected. */
  #trouble: string | undefined

  constructor(options: ContactOptions, handlers: ContactHandlers) {
    this.#options = options
    this.#handlers = handlers
    this.#limitMs = options.connectTimeoutMs
    this.#unwatch = options.readiness.watch({
      onReady: () => void this.#enter(),
      onError: (reason) => this.#failed(reason),
    })
  }

  get isOpen(): boolean {
    return this.#state === 'open' && this.#options.readiness.isReady
  }

  /** Undefined: it can be asked now. Rejects when it cannot be reached. */
  reach(): Promise<void> | undefined {
    const { readiness, nodeTimeoutMs } = this.#options
    if (readiness.isReady) return this.#state === 'open' ? undefined : this.#enter()
    // A client that is closed refuses the request itself, and says what to do.
    if (readiness.isClosed) return undefined
    if (this.#state === 'away')
      return Promise.reject(this.#handlers.failure(this.#trouble ?? 'it is not connected'))
    if (this.#state === 'open') this.#state = 'lost'
    if (this.#state === 'lost') this.#limitMs = nodeTimeoutMs
    this.#wait ??= { ...Promise.withResolvers<void>(), timer: this.#startTimer() }
    readiness.wake()
    return this.#wait.promise
  }

  /** A majority is connected, so calls need not wait for this node much longer. */
  shortenWait(): void {
    const { nodeTimeoutMs } = this.#options
    if (this.#state !== 'untried' || this.#limitMs === nodeTimeoutMs) return
    this.#limitMs = nodeTimeoutMs
    if (this.#wait === undefined) return
    this.#wait.timer.cancel()
    this.#wait.timer = this.#startTimer()
  }

  close(): void {
    this.#unwatch()
    this.#leave('the backend is closed')
  }

  #startTimer(): Timer {
    const limitMs = this.#limitMs
    return this.#options.clock.setTimer(limitMs, () =>
      this.#leave(this.#trouble ?? `it has not connected within ${limitMs} ms`),
    )
  }

  #enter(): Promise<void> {
    // A handler that cannot be sent first does not keep the node from being asked.
    this.#entering ??= this.#handlers
      .onConnected()
      .catch(ignore)
      .then(() => {
        this.#entering = undefined
        this.#state = 'open'
        this.#trouble = undefined
        this.#endWait()?.resolve()
        this.#handlers.onOpen()
      })
    return this.#entering
  }

  #failed(reason: string): void {
    // The library's own check fails in consequence of what it has just said.
    if (this.#trouble === undefined || !reason.startsWith('Ready check failed')) this.#trouble = reason
    if (this.#state === 'open') this.#state = 'lost'
    else this.#leave(this.#trouble)
  }

  #leave(reason: string): void {
    this.#state = 'away'
    this.#trouble = reason
    this.#endWait()?.reject(this.#handlers.failure(reason))
  }

  #endWait(): Wait | undefined {
    const wait = this.#wait
    wait?.timer.cancel()
    this.#wait = undefined
    return wait
  }
}
