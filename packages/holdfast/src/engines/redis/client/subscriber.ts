/**
 * One connection for messages, kept up for as long as there is a subscription.
 *
 *   closed ──first subscribe──▶ open                      [#connect]
 *   open ──connection lost──▶ coming back ──▶ open        [#comeBack]   tells every listener: messages may be missing
 *   any ──close──▶ ended                                               also a connection that is in its handshake
 *
 * Failures between two steps: the connection is lost before or after a SUBSCRIBE is confirmed (everything is
 * subscribed anew on the next connection, and all listeners are told); a message comes for a channel that has been left
 * (it is dropped); it is lost silently (it is not noticed here: keep-alives must bring what matters); the server accepts
 * the connection and says nothing (it is given up after a while, and the next one is tried).
 */

import type { Clock, Timer } from '../../../base/clock.ts'
import type { Random } from '../../../base/ids.ts'
import { ignore } from '../../../base/ignore.ts'
import { growingPauseMs } from '../../../base/pauses.ts'
import { SharedWork } from '../../../base/shared-work.ts'
import type { RawSubscriber } from './raw.ts'

export interface Subscription {
  unsubscribe(): Promise<void>
}

interface Listening {
  readonly onMessage: (message: string) => void
  /** The subscription stands again after a gap. */
  readonly onResumed: () => void
}

const PAUSES = { firstMs: 20, longestMs: 2_000 }
/** For a connection and its handshake. */
const LONGEST_OPENING_MS = 10_000

export class Subscriber {
  readonly #flight: SharedWork<RawSubscriber>
  readonly #clock: Clock
  readonly #random: Random
  readonly #listening = new Map<string, Listening>()
  #connection: RawSubscriber | undefined
  #pause: Timer | undefined
  readonly #ending = new AbortController()

  constructor(
    open: (stop: AbortSignal) => Promise<RawSubscriber>,
    backend: string,
    clock: Clock,
    random: Random,
  ) {
    this.#flight = new SharedWork(backend, (stop) => this.#connect(open(stop)), {
      ms: LONGEST_OPENING_MS,
      clock,
    })
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
        await this.#connection?.unsubscribe(channel).catch(ignore)
      },
    }
  }

  close(): void {
    this.#ending.abort(new Error('the subscriber is closed'))
    this.#listening.clear()
    this.#pause?.cancel()
    this.#drop()
  }

  #connected(): Promise<RawSubscriber> {
    if (this.#ending.signal.aborted) return Promise.reject(this.#ending.signal.reason)
    return this.#flight.join()
  }

  async #connect(opening: Promise<RawSubscriber>): Promise<RawSubscriber> {
    const connection = await opening
    if (this.#ending.signal.aborted) {
      connection.close()
      throw this.#ending.signal.reason
    }
    this.#connection = connection
    connection.onLost(() => {
      if (this.#connection !== connection) return
      this.#drop()
      this.#comeBack(0)
    })
    return connection
  }

  /** Let go of before it is closed: its end is ours, and no loss to come back from. */
  #drop(): void {
    const connection = this.#connection
    this.#connection = undefined
    this.#flight.drop(new Error('the subscriber is closed'))?.catch(ignore)
    connection?.close()
  }

  #comeBack(tries: number): void {
    if (this.#ending.signal.aborted || this.#listening.size === 0) return
    const ms = growingPauseMs(tries, PAUSES) * (0.5 + this.#random.fraction())
    this.#pause?.cancel()
    this.#pause = this.#clock.setTimer(ms, () => {
      this.#resume().catch(() => {
        this.#drop()
        this.#comeBack(tries + 1)
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
