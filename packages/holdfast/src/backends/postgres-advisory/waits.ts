/**
 * Waiting in the server's own line, which is first come, first served, and hands a lock over inside the unlock. A session
 * of the server waits for one lock at a time, so each wait has a connection of its own, which has the lock afterwards:
 * a lock cannot be moved to another session.
 *
 * What may go wrong while it waits:
 *   Its process ends: the server looks every half second whether the client is there still.
 *   It cannot be reached any more: when its turn comes, `advisory_take` finds the session over, and gives the lock up.
 *   It is cancelled: the server is told by another connection to cancel the wait, again and again until it has ended.
 */

import { sleep } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { arrayLiteral } from '../../clients/postgres/index.ts'
import type { LockMode } from './holdings.ts'
import { unlessCallIsCancelled } from './lane.ts'
import { type Links, NAME } from './links.ts'
import { LockConnection } from './lock-connection.ts'
import type { Item } from './operations.ts'

export interface WaitEvents {
  readonly maxWaiters: number | undefined
  /** Whether anybody still wants it. */
  readonly isWanted: () => boolean
  readonly onConnection: (connection: LockConnection) => void
  readonly onQueued: () => void
  /** The connection ended while it had the lock. */
  readonly onEnd: () => void
}

export type Turn =
  | { readonly kind: 'granted'; readonly token: string }
  | { readonly kind: 'session-gone' }
  | { readonly kind: 'queue-full' }

const ignore = () => {}
const MOST_SPARE = 4
const CANCEL_AGAIN_MS = 50

export class Waits {
  readonly #links: Links
  readonly #main: LockConnection
  readonly #ttlMs: number
  /** All of them, with what to do when one of them ends by itself. */
  readonly #connections = new Map<LockConnection, () => void>()
  /** They hold nothing, and end by themselves if nobody needs them for a TTL. */
  readonly #spare: LockConnection[] = []
  readonly #opening = new AbortController()

  constructor(links: Links, main: LockConnection, ttlMs: number) {
    this.#links = links
    this.#main = main
    this.#ttlMs = ttlMs
  }

  async wait(item: Item, mode: LockMode, events: WaitEvents): Promise<Turn> {
    const connection = await this.#inLine(item, mode, events)
    if (connection === null) return { kind: 'queue-full' }
    if (!events.isWanted()) {
      this.#forget(connection)
      await connection.close()
      throw new BackendUnavailableError(NAME, 'nobody waits any more', 'not-applied')
    }
    this.#connections.set(connection, events.onEnd)
    events.onConnection(connection)
    events.onQueued()
    const token = await connection.take(this.#main.key, item, mode, this.#ttlMs)
    return token === null ? { kind: 'session-gone' } : { kind: 'granted', token }
  }

  /** Gives up the lock that a connection has; then it may wait for another. */
  async giveUp(connection: LockConnection, item: Item): Promise<void> {
    await connection.applyOne(item)
    await this.#spareOrClose(connection)
  }

  async #spareOrClose(connection: LockConnection): Promise<void> {
    if (this.#opening.signal.aborted || this.#spare.length >= MOST_SPARE) {
      this.#forget(connection)
      await connection.close()
      return
    }
    if (connection.ended) return
    this.#connections.set(connection, ignore)
    this.#spare.push(connection)
  }

  /** Ends one that waits; what it may have got in this moment is given up (T11). */
  async callOff(connection: LockConnection, signal?: AbortSignal): Promise<void> {
    await this.#callOff([connection], signal)
  }

  /** Ends all of its connections. Afterwards none of them holds or waits. */
  async close(): Promise<void> {
    this.#opening.abort(new BackendUnavailableError(NAME, 'the session has ended', 'not-applied'))
    const connections = [...this.#connections.keys()]
    this.#connections.clear()
    this.#spare.length = 0
    try {
      await this.#callOff(connections)
    } finally {
      for (const connection of connections) connection.drop()
    }
  }

  /**
   * Cancelled and not terminated: the connection ends in good order, as postgres.js needs it. What was cancelled may have
   * got the lock all the same, so everything that the connection has is given up.
   */
  async #callOff(connections: readonly LockConnection[], signal?: AbortSignal): Promise<void> {
    for (;;) {
      const waiting = connections.filter((connection) => connection.waiting !== undefined)
      if (waiting.length === 0) break
      const settled = Promise.all(waiting.map((connection) => connection.waiting))
      const cancelling = this.#cancel(waiting)
      for (const connection of waiting) connection.aimAt(cancelling)
      await (signal === undefined ? cancelling : unlessCallIsCancelled(cancelling, signal))
      // A cancellation that comes before the statement is ignored by the server, and has to be repeated.
      await Promise.race([settled, sleep(this.#links.clock, CANCEL_AGAIN_MS, { keepsProcessAlive: true })])
    }
    await Promise.all(connections.map((connection) => connection.close()))
  }

  /** Over the session's own connection while there is one, so that what it says next comes after it. */
  async #cancel(waiting: readonly LockConnection[]): Promise<void> {
    const keys = waiting.map(({ key }) => key)
    if (!this.#main.ended) await this.#main.callOff(keys)
    else await this.#links.query(this.#links.sql.callOff, [arrayLiteral(keys)])
  }

  /** A connection that has said for whom it is going to wait. Null: the queue is full. */
  async #inLine(
    item: Item,
    mode: LockMode,
    { isWanted, maxWaiters }: WaitEvents,
  ): Promise<LockConnection | null> {
    const spare = this.#spare.pop()
    if (spare !== undefined) {
      try {
        if (await spare.place(this.#main.key, item, mode, maxWaiters)) return spare
        await this.#spareOrClose(spare)
        return null
      } catch {
        // It had ended, unnoticed. Another one will do.
        this.#forget(spare)
      }
    }
    const { random } = this.#links
    const connection = await LockConnection.open(this.#links, {
      id: random.id() + random.id(),
      ttlMs: this.#ttlMs,
      signal: this.#opening.signal,
    })
    this.#connections.set(connection, ignore)
    connection.onEnd(() => {
      const onEnd = this.#connections.get(connection)
      this.#forget(connection)
      onEnd?.()
    })
    if (!isWanted() || (await connection.place(this.#main.key, item, mode, maxWaiters))) return connection
    await this.#spareOrClose(connection)
    return null
  }

  #forget(connection: LockConnection): void {
    this.#connections.delete(connection)
    const at = this.#spare.indexOf(connection)
    if (at >= 0) this.#spare.splice(at, 1)
  }
}
