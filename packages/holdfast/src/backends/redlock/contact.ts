/**
 * Whether a node can be asked: the state of the connection to it. Its time-out is a matter of answers; connecting and
 * the handshake have a limit of their own, and that is paid once.
 *
 *   untried ──connected──▶ open                                     [#enter]
 *   untried ──its first try fails, or the limit is over──▶ away     [#leave]   asked of nobody until it is connected
 *   open ──found to be disconnected──▶ lost                         [reach]    reconnecting may be a matter of an instant
 *   lost ──connected──▶ open
 *   lost ──a try to reconnect fails, or one time-out is over──▶ away
 *   away ──connected──▶ open
 *
 * So a node that refuses connections costs nothing, one that swallows them costs the limit once, and neither costs
 * anything when a majority is connected: then the others have one time-out left (`hurry`). What was not asked has
 * certainly not been applied.
 *
 * On every connection the scripts are loaded first, ahead of the first question in the order of the wire: a server that
 * had to be given a script in answer to NOSCRIPT would need two round trips within one time-out. If the loading is lost
 * or forbidden, that is what happens.
 */

import type { Clock, Timer } from '../../base/clock.ts'
import type { Readiness } from '../../clients/redis/index.ts'

export interface ContactOptions {
  readonly readiness: Readiness
  readonly clock: Clock
  /** For the first connection. */
  readonly connectTimeoutMs: number
  /** For those who come back, and for those whom the majority need not wait for. */
  readonly nodeTimeoutMs: number
  /** Sends what comes first on a connection, and waits for nothing. */
  greet(): Promise<void>
  /** It can be asked, for the first time or again. */
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
  readonly #unwatch: () => void
  #state: 'untried' | 'open' | 'lost' | 'away' = 'untried'
  #limitMs: number
  #wait: Wait | undefined
  #entering: Promise<void> | undefined
  /** What the client said last of why it is not connected. */
  #trouble: string | undefined

  constructor(options: ContactOptions) {
    this.#options = options
    this.#limitMs = options.connectTimeoutMs
    this.#unwatch = options.readiness.watch({
      onReady: () => void this.#enter(),
      onError: (reason) => this.#hear(reason),
    })
  }

  get isOpen(): boolean {
    return this.#state === 'open' && this.#options.readiness.isReady
  }

  /** Undefined: it can be asked now. Rejects when it cannot be had. */
  reach(): Promise<void> | undefined {
    const { readiness, failure } = this.#options
    if (readiness.isReady) return this.#state === 'open' ? undefined : this.#enter()
    // Whoever asks all the same is told what to do by the connection.
    if (readiness.isClosed) return undefined
    if (this.#state === 'open') this.#state = 'lost'
    if (this.#state === 'away') return Promise.reject(failure(this.#trouble ?? 'it is not connected'))
    this.#wait ??= this.#startWaiting()
    readiness.wake()
    return this.#wait.promise
  }

  /** A majority is connected, so that nobody needs to wait for this one much longer. */
  hurry(): void {
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

  #startWaiting(): Wait {
    if (this.#state === 'lost') this.#limitMs = this.#options.nodeTimeoutMs
    return { ...Promise.withResolvers<void>(), timer: this.#startTimer() }
  }

  #startTimer(): Timer {
    const limitMs = this.#limitMs
    return this.#options.clock.setTimer(limitMs, () =>
      this.#leave(this.#trouble ?? `it has not connected within ${limitMs} ms`),
    )
  }

  #enter(): Promise<void> {
    this.#entering ??= this.#greetAndOpen().finally(() => {
      this.#entering = undefined
    })
    return this.#entering
  }

  async #greetAndOpen(): Promise<void> {
    // Whoever cannot be greeted can be asked all the same.
    await this.#options.greet().catch(() => {})
    this.#state = 'open'
    this.#trouble = undefined
    this.#endWait()?.resolve()
    this.#options.onOpen()
  }

  #hear(reason: string): void {
    // The library's own check fails in consequence of what it has just said.
    if (this.#trouble === undefined || !reason.startsWith('Ready check failed')) this.#trouble = reason
    if (this.#state === 'open') this.#state = 'lost'
    else this.#leave(this.#trouble)
  }

  #leave(reason: string): void {
    this.#state = 'away'
    this.#trouble = reason
    this.#endWait()?.reject(this.#options.failure(reason))
  }

  #endWait(): Wait | undefined {
    const wait = this.#wait
    wait?.timer.cancel()
    this.#wait = undefined
    return wait
  }
}
