/**
 * Connections that a client has lost, by the events that it documents.
 *
 * `count` tells a caller that its command may have been sent twice: ioredis sends unanswered commands again after it has
 * reconnected (a `Cluster` and a Sentinel client of node-redis do as well), so the answer may be that of the second copy.
 *
 * `UnansweredCalls` is for clients that forget the commands in flight when the connection closes (ioredis with
 * `autoResendUnfulfilledCommands: false`): those commands never settle.
 */
import { errorMonitor } from 'node:events'
import type { RedisClient } from './client.ts'

interface Emitter {
  on?(event: string | symbol, listener: () => void): unknown
  off?(event: string | symbol, listener: () => void): unknown
}

/**
 * `close`: ioredis. `-node`, `node error`: a Cluster of ioredis. `reconnecting`, `topology-change`: node-redis, its Sentinel
 * client. A false alarm only turns `not-held` into `unknown`.
 */
const signsOfLoss = ['close', '-node', 'node error', 'reconnecting', 'topology-change', errorMonitor]

const known = new WeakMap<RedisClient, ConnectionLosses>()

export function lossesOf(client: RedisClient): ConnectionLosses {
  let losses = known.get(client)
  if (losses === undefined) {
    losses = new ConnectionLosses(client as Emitter)
    known.set(client, losses)
  }
  return losses
}

/** One set of listeners a client, while there is a watcher. */
export class ConnectionLosses {
  readonly #client: Emitter
  readonly #watchers = new Set<UnansweredCalls>()
  /** Goes up whenever a connection may have been lost. */
  count = 0

  constructor(client: Emitter) {
    this.#client = client
  }

  /** Call the result to stop. */
  watch(calls: UnansweredCalls): () => void {
    if (this.#watchers.size === 0)
      for (const [event, listener] of this.#listeners) this.#client.on?.(event, listener)
    this.#watchers.add(calls)
    return () => {
      if (!this.#watchers.delete(calls) || this.#watchers.size > 0) return
      for (const [event, listener] of this.#listeners) this.#client.off?.(event, listener)
    }
  }

  readonly #listeners: readonly (readonly [string | symbol, () => void])[] = [
    ...signsOfLoss.map((event) => [event, () => void this.count++] as const),
    [
      'ready',
      () => {
        for (const calls of this.#watchers) calls.sent()
      },
    ],
    [
      'close',
      () => {
        for (const calls of this.#watchers) calls.lost()
      },
    ],
  ]
}

/**
 *   queued ──connected──▶ sent ──connection lost──▶ rejected: it may have been applied
 *   queued | sent ──the client settles it──▶ settled
 */
export class UnansweredCalls {
  /** In the client's offline queue, which outlives a connection. */
  readonly #queued = new Set<() => void>()
  readonly #sent = new Set<() => void>()

  track<T>(work: Promise<T>, isConnected: boolean): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const lose = () => reject(new Error('the connection was lost before the answer came'))
      const calls = isConnected ? this.#sent : this.#queued
      calls.add(lose)
      const settled = () => {
        this.#queued.delete(lose)
        this.#sent.delete(lose)
      }
      work.then(resolve, reject).finally(settled)
    })
  }

  sent(): void {
    for (const lose of this.#queued) this.#sent.add(lose)
    this.#queued.clear()
  }

  lost(): void {
    const lost = [...this.#sent]
    this.#sent.clear()
    for (const lose of lost) lose()
  }
}
