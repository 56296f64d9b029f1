/**
 * A second way to the primary, over a connection of our own: on the user's connection everything waits behind a command that
 * blocks, such as BLPOP (T85, shared clients).
 */

import { callWith } from '../../../base/aborting.ts'
import { type Clock, judgeLate } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { ignore } from '../../../base/ignore.ts'
import type { DedicatedConnection, RedisConnection } from './connection.ts'
import { OwnConnections } from './own-connections.ts'
import type { RedisReply } from './raw.ts'

/** When `runPromptly` uses a connection of our own, and what its answer is worth. */
export interface Promptness {
  /** The client may take that long before the script also goes over our own connection. */
  readonly afterMs: number
  /** For our own connection and its handshake. */
  readonly openWithinMs: number
  /**
   * Whether an answer over our own connection counts. It may come from another database than the client's (SELECT), or
   * from a server that is no longer the primary. So what it does not find may exist; what it finds does.
   */
  readonly confirms: (reply: RedisReply) => boolean
}

export class PromptConnections {
  readonly #connection: RedisConnection
  readonly #clock: Clock
  readonly #own: OwnConnections<DedicatedConnection>
  /** The client did not answer, and our own connection was answered meanwhile. */
  isHeldUp = false

  constructor(connection: RedisConnection, clock: Clock) {
    this.#connection = connection
    this.#clock = clock
    this.#own = new OwnConnections(connection, (key, stop) => connection.dedicated(key, stop))
  }

  /** `key`: of the primary that is asked. */
  run(
    key: string,
    ask: (on: Pick<RedisConnection, 'run'>) => Promise<RedisReply>,
    signal: AbortSignal | undefined,
    { afterMs, openWithinMs, confirms }: Promptness,
  ): Promise<RedisReply> {
    return new Promise((resolve, reject) => {
      let isSettled = false
      const askPromptly = async () => {
        if (!this.#connection.isConnected) return
        const own = await this.#own.get(key, callWith(signal), { ms: openWithinMs, clock: this.#clock })
        const reply = await ask(own).catch((error: unknown) => {
          // The connection is shared, so a call that was cancelled does not end it. One that timed out does: it may be lost silently.
          if (isHoldfastError(signal?.reason, 'BACKEND_UNAVAILABLE')) own.close()
          throw error
        })
        if (isSettled) return
        this.isHeldUp = true
        if (confirms(reply)) resolve(reply)
      }
      // If asking promptly fails as well, the client's own answer is the one to wait for.
      const timer = judgeLate(this.#clock, afterMs, () => askPromptly().catch(ignore))
      const settled = () => {
        isSettled = true
        timer.cancel()
      }
      ask(this.#connection).then(
        (reply) => {
          settled()
          this.isHeldUp = false
          resolve(reply)
        },
        (error: unknown) => {
          settled()
          reject(error)
        },
      )
    })
  }
}
