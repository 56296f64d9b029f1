/**
 * The sockets of connections that Holdfast itself opens with `pg`, through its option `stream`. `pg` waits for a server that
 * does not answer for as long as TCP does, also when it ends a connection. A socket can be closed at any time.
 */

import { Socket } from 'node:net'
import type { Clock } from '../../../base/clock.ts'
import { ignore } from '../../../base/ignore.ts'
import { settledWithin } from '../../../base/within.ts'

/** How long the server may take to answer the end of a connection. */
const END_WITHIN_MS = 1_000

export class PgSockets {
  readonly #clock: Clock
  readonly #open = new Set<Socket>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The value of the option `stream`. */
  readonly create = (): Socket => {
    const socket = new Socket()
    this.#open.add(socket)
    socket.once('close', () => this.#open.delete(socket))
    return socket
  }

  /** Whether they keep the process alive. */
  hold(how: 'ref' | 'unref'): void {
    for (const socket of this.#open) socket[how]()
  }

  destroy(): void {
    for (const socket of this.#open) socket.destroy()
  }

  /** `end` ends the connections in an orderly way. What is still open after a second, or after it fails, is closed by force. */
  async endWithin(end: () => Promise<unknown>): Promise<void> {
    await settledWithin(this.#clock, END_WITHIN_MS, end(), { keepsProcessAlive: true }).catch(ignore)
    this.destroy()
  }
}
