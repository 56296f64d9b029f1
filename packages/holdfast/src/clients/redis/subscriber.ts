/**
 * One connection for messages, kept up for as long as somebody listens.
 *
 *   closed ──first subscribe──▶ open                      [#connect]
 *   open ──connection lost──▶ coming back ──▶ open        [#comeBack]   tells every listener: messages may be missing
 *   any ──close──▶ ended                                               also a connection that is in its handshake
 *
 * What may go wrong between two steps: the connection is lost before or after a SUBSCRIBE is confirmed (everything is
 * subscribed anew on the next connection, and everybody is told); a message comes for a channel that has been left
 * (nobody is asked); it is lost silently (nobody notices here: keep-alives must bring what matters); the server accepts
 * the connection and says nothing (it is given up after a while, and the next one is tried).
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Random } from '../../base/ids.ts'
import type { RawSubscriber } from './raw.ts'

export interface Subscription {
  unsubscribe(): Promise<void>
}

interface Listening {
  readonly onMessage: (message: string) => void
  /** The subscription stands again after a gap. */
  readonly onResumed: () => void
}

const FIRST_PAUSE_MS = 20
const LONGEST_PAUSE_MS = 2_000
/** For a connection and its handshake. */
const LONGEST_OPENING_MS = 10_000

export class Subscriber {
  readonly #open: (stop: AbortSignal) => Promise<RawSubscriber>
  readonly #clock: Clock
  readonly #random: Random
  readonly #listening = new Map<string, Listening>()
  #connection: RawSubscriber | undefined
  #connecting: Promise<RawSubscriber> | undefined
  #pause: Timer | undefined
  readonly #ending = new AbortController()

  constructor(open: (stop: AbortSignal) => Promise<RawSubscriber>, clock: Clock, random: Random) {
    this.#open = open
    this.#clock = clock
    this.#random = random
  }

  /** Resolves when the server has confirmed it; rejects, and listens to nothing, when that cannot be had now. */
  async subscribe(
    channel: string,
    onMessage: (message: string) => void,
    onResumed: () => void,
  ): Promise<Subscription> {
    const connection = await this.#connected()
    this.#listening.set(channel, { onMessage, onResumed })
    try {
      await connection.subscribe(channel, (message) => this.#listening.get(channel)?.onMessage(message))
    } catch (error) {
      this.#listening.delete(channel)
      throw error
    }
    return {
      unsubscribe: async () => {
        this.#listening.delete(channel)
        // The channel is ours alone: if leaving fails, the connection is gone, and the subscription with it.
        await this.#connection?.unsubscribe(channel).catch(() => {})
      },
    }
  }

  close(): void {
    this.#ending.abort(new Error('the subscriber is closed'))
    this.#listening.clear()
    this.#pause?.cancel()
    const connection = this.#connection
    this.#connection = undefined
    connection?.close()
  }

  #connected(): Promise<RawSubscriber> {
    if (this.#ending.signal.aborted) return Promise.reject(this.#ending.signal.reason)
    if (this.#connection !== undefined) return Promise.resolve(this.#connection)
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined
    })
    return this.#connecting
  }

  async #connect(): Promise<RawSubscriber> {
    const limit = new AbortController()
    const timer = this.#clock.setTimer(LONGEST_OPENING_MS, () =>
      limit.abort(new Error(`no connection within ${LONGEST_OPENING_MS} ms`)),
    )
    const opening = this.#open(AbortSignal.any([this.#ending.signal, limit.signal]))
    const connection = await opening.finally(() => timer.cancel())
    if (this.#ending.signal.aborted) {
      connection.close()
      throw this.#ending.signal.reason
    }
    this.#connection = connection
    connection.onLost(() => {
      if (this.#connection !== connection) return
      this.#connection = undefined
      connection.close()
      this.#comeBack(0)
    })
    return connection
  }

  #comeBack(tries: number): void {
    if (this.#ending.signal.aborted || this.#listening.size === 0) return
    const ms = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** tries) * (0.5 + this.#random.fraction())
    this.#pause?.cancel()
    this.#pause = this.#clock.setTimer(ms, () => {
      this.#resume().catch(() => {
        // Let go of before it is closed: its end is ours, and no loss to come back from.
        const failed = this.#connection
        this.#connection = undefined
        failed?.close()
        this.#comeBack(Math.min(tries + 1, 10))
      })
    })
  }

  async #resume(): Promise<void> {
    const connection = await this.#connected()
    const resumed = [...this.#listening]
    for (const [channel] of resumed)
      await connection.subscribe(channel, (message) => this.#listening.get(channel)?.onMessage(message))
    for (const [, { onResumed }] of resumed) onResumed()
  }
}
