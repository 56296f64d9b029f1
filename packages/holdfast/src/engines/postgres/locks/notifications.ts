/**
 * One connection that listens, for all waiters of this process. A pooler in transaction mode takes a LISTEN and delivers
 * nothing, and a dead connection is silent too. So the connection is believed only after messages to itself, sent over another
 * connection, came back; the check is repeated while there are waiters. It takes several messages: a single one may get through a
 * pooler by chance, while another statement has the listening connection linked to the server that it once listened on.
 *
 *   idle ──start──▶ trying ──own messages came back──▶ hears
 *   trying ──it did not, in time──▶ deaf ──RETRY_DEAF_MS──▶ trying        waiters poll
 *   hears ──own message did not come back──▶ trying
 *   trying | hears | deaf ──connection ends──▶ trying, after a pause
 *   any ──no waiters──▶ stays as it is, without messages to itself
 *
 * All waiters look once whenever `hears` begins: what was sent before may have been missed (T19, lost wake-ups).
 */

import type { Clock, Timer } from '../../../base/clock.ts'
import { ignore } from '../../../base/ignore.ts'
import { growingPauseMs } from '../../../base/pauses.ts'
import type { Listener, PostgresDatabase } from '../client/index.ts'

export interface NotificationsOptions {
  readonly database: PostgresDatabase
  readonly channel: string
  readonly clock: Clock
  /** Sends a message to the own channel, over another connection. */
  readonly send: (message: string) => Promise<unknown>
  readonly isNeeded: () => boolean
  readonly onMessage: (message: string) => void
  /** The listener hears from now on, or does not any more. */
  readonly onChange: (hears: boolean) => void
  readonly onListen: () => void
}

/** How long its own message may take; on a healthy server it is milliseconds. */
const ECHO_WITHIN_MS = 2_000
const ECHO_EVERY_MS = 10_000
const ECHOES_NEEDED = 3
const NEXT_ECHO_MS = 30
const RETRY_DEAF_MS = 60_000
const PAUSES = { firstMs: 100, longestMs: 5_000 }
const ECHO = 'echo '

export class Notifications {
  readonly #options: NotificationsOptions
  #state: 'idle' | 'trying' | 'hears' | 'deaf' = 'idle'
  #listener: Listener | undefined
  #timer: Timer | undefined
  #echoes = 0
  #heard = 0
  #losses = 0
  #closed = false
  /** Only the last of several listeners in succession may speak. */
  #generation = 0

  constructor(options: NotificationsOptions) {
    this.#options = options
  }

  get hears(): boolean {
    return this.#state === 'hears'
  }

  /** True after the listener has tried, and nothing arrives. */
  get isDeaf(): boolean {
    return this.#state === 'deaf'
  }

  /** There is a waiter. */
  start(): void {
    if (this.#state === 'idle' && !this.#closed) this.#listen()
    else if (this.#state === 'hears' && this.#timer === undefined) this.#checkLater()
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    this.#generation++
    await this.#listener?.close()
  }

  #listen(): void {
    this.#state = 'trying'
    this.#heard = 0
    const generation = ++this.#generation
    const ifCurrent =
      <Arguments extends unknown[]>(act: (...args: Arguments) => void) =>
      (...args: Arguments) => {
        if (generation === this.#generation && !this.#closed) act(...args)
      }
    const { database, channel, onListen } = this.#options
    this.#listener = undefined
    database
      .listen(channel, {
        onListening: ifCurrent(() => {
          onListen()
          // A connection that was replaced quietly may have missed something.
          if (this.#state === 'hears') this.#change('trying')
          this.#heard = 0
          this.#echo()
        }),
        onNotification: ifCurrent((message) => this.#receive(message)),
        onEnd: ifCurrent(() => this.#again()),
      })
      .then(
        (listener) => {
          if (generation === this.#generation && !this.#closed) this.#listener = listener
          else listener.close().catch(ignore)
        },
        ifCurrent(() => this.#again()),
      )
  }

  #receive(message: string): void {
    if (!message.startsWith(ECHO)) {
      this.#options.onMessage(message)
      return
    }
    if (message !== `${ECHO}${this.#echoes}`) return
    this.#losses = 0
    this.#heard++
    if (this.#heard < ECHOES_NEEDED) {
      this.#arm(NEXT_ECHO_MS, () => this.#echo())
      return
    }
    this.#arm(ECHO_EVERY_MS, () => this.#checkLater())
    if (this.#state !== 'hears') this.#change('hears')
  }

  #checkLater(): void {
    this.#timer = undefined
    if (this.#options.isNeeded()) this.#echo()
  }

  #echo(): void {
    this.#echoes++
    this.#arm(ECHO_WITHIN_MS, () => this.#silent())
    // If it cannot be sent, no echo comes, and that is all that counts.
    this.#options.send(`${ECHO}${this.#echoes}`).catch(ignore)
  }

  #silent(): void {
    if (this.#state === 'hears') {
      this.#change('trying')
      this.#replace()
      return
    }
    this.#change('deaf')
    this.#arm(RETRY_DEAF_MS, () => this.#replace())
  }

  #replace(): void {
    this.#listener?.close().catch(ignore)
    this.#restart()
  }

  #again(): void {
    this.#generation++
    if (this.#state === 'hears') this.#change('trying')
    this.#arm(growingPauseMs(this.#losses++, PAUSES), () => this.#restart())
  }

  #restart(): void {
    this.#timer = undefined
    if (this.#options.isNeeded()) this.#listen()
    else this.#state = 'idle'
  }

  #change(state: 'trying' | 'hears' | 'deaf'): void {
    this.#state = state
    this.#options.onChange(state === 'hears')
  }

  #arm(ms: number, fire: () => void): void {
    this.#timer?.cancel()
    this.#timer = this.#options.clock.setTimer(ms, fire)
  }
}
