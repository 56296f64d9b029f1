/**
 * What the Redis backends and the Redis guard know of the user's client: scripts by SHA, plain commands to the
 * primaries, messages, and connections of our own. One interface for every supported library and topology.
 *
 * Every failure is a `BackendUnavailableError` that says whether the command may have been applied. A call whose
 * signal aborts settles at once with `unknown`: the client may send the command later all the same, from its offline
 * queue or after reconnecting. Time limits are the caller's.
 */

import { unlessAborted } from '../../core/calling-off.ts'
import { type Clock, systemClock } from '../../core/clock.ts'
import { BackendUnavailableError, ClosedError, InvalidArgumentError } from '../../core/errors.ts'
import { type Random, systemRandom } from '../../core/ids.ts'
import type { IoRedisClient, NodeRedisClient, RedisClient } from './client.ts'
import { redisFailure, serverCodeOf } from './failures.ts'
import { adaptIoRedis } from './ioredis.ts'
import { adaptNodeRedis } from './node-redis.ts'
import type { RawConnection, RawNode, RawRedis, RedisReply, RedisTopology } from './raw.ts'
import type { RedisScript } from './script.ts'
import { Subscriber, type Subscription } from './subscriber.ts'

export interface RedisConnectionOptions {
  /** Who speaks, in errors: `redis`, `redlock`. */
  readonly backend: string
  readonly clock?: Clock
  readonly random?: Random
}

/** A primary, for commands that belong to no key. */
export interface RedisNode {
  readonly label: string
  send(args: readonly string[], signal?: AbortSignal): Promise<RedisReply>
}

/** A connection of our own to one primary; it does not come back when it is lost. */
export interface DedicatedConnection extends RedisNode {
  close(): void
}

export class RedisConnection {
  readonly topology: RedisTopology
  /** Where the client was told to connect to; no password. */
  readonly address: string
  /** What the client puts in front of every key; keys are given to `run` without it. */
  readonly keyPrefix: string
  readonly #raw: RawRedis
  readonly #backend: string
  readonly #subscriber: Subscriber
  readonly #dedicated = new Set<RawConnection>()
  /** Whatever is being opened when it aborts is not opened. */
  readonly #ending = new AbortController()

  constructor(client: RedisClient, options: RedisConnectionOptions) {
    const { backend, clock = systemClock, random = systemRandom } = options
    this.#raw = adapt(client)
    this.#backend = backend
    this.topology = this.#raw.topology
    this.address = this.#raw.address
    this.keyPrefix = this.#raw.keyPrefix
    this.#subscriber = new Subscriber((stop) => this.#raw.subscriber(stop), clock, random)
  }

  get writesOncePerTurn(): boolean {
    return this.#raw.writesOncePerTurn
  }

  get isCluster(): boolean {
    return this.topology === 'cluster'
  }

  /**
   * Runs a script on the primary that has its keys (in a Cluster they must be of one slot, and there must be one). A
   * server that does not know the script says so before it does anything, and is given the whole of it then.
   */
  run(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    signal?: AbortSignal,
  ): Promise<RedisReply> {
    return this.#guarded('script', signal, () => this.#evaluate(script, keys, args))
  }

  #evaluate(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<RedisReply> {
    return this.#raw.evaluate('EVALSHA', script.sha1, keys, args).catch((error: unknown) => {
      if (serverCodeOf(error) !== 'NOSCRIPT') throw error
      return this.#raw.evaluate('EVAL', script.source, keys, args)
    }) as Promise<RedisReply>
  }

  /** All primaries: one, or those of the Cluster. */
  async nodes(signal?: AbortSignal): Promise<readonly RedisNode[]> {
    const nodes = await this.#guarded('looking for the primaries', signal, () => this.#raw.primaries())
    return nodes.map((node) => this.#nodeOf(node))
  }

  /** Which primary has this key now, as far as the client knows: the same text for the same one. */
  ownerOf(key: string): string {
    return this.#raw.ownerOf(key)
  }

  /** A connection of our own to the primary that has this key: for commands that block, such as WAIT. */
  async dedicated(key: string, signal?: AbortSignal): Promise<DedicatedConnection> {
    const stop = AbortSignal.any([this.#ending.signal, ...(signal === undefined ? [] : [signal])])
    const connection = await this.#guarded('connecting', stop, async () => {
      const own = await this.#raw.dedicated(key, stop)
      this.#dedicated.add(own)
      return own
    })
    const close = () => {
      this.#dedicated.delete(connection)
      connection.close()
    }
    return { ...this.#nodeOf(connection), close }
  }

  /**
   * Messages of a channel, over one connection of our own for all channels. After a loss it comes back by itself and
   * calls `onResumed`: messages may have been missed in between.
   */
  subscribe(
    channel: string,
    onMessage: (message: string) => void,
    onResumed: () => void,
    signal?: AbortSignal,
  ): Promise<Subscription> {
    return this.#guarded('subscribing', signal, () =>
      this.#subscriber.subscribe(channel, onMessage, onResumed),
    )
  }

  /** Ends what we opened; the user's client stays as it is. */
  close(): void {
    this.#ending.abort(new ClosedError(`The ${this.#backend} backend`))
    this.#subscriber.close()
    for (const connection of this.#dedicated) connection.close()
    this.#dedicated.clear()
  }

  #nodeOf(node: RawNode): RedisNode {
    return {
      label: node.label,
      send: (args, signal) =>
        this.#guarded(args[0] ?? 'command', signal, () => node.send(args)) as Promise<RedisReply>,
    }
  }

  /** Every call goes this way, tens of thousands a second: so it makes one promise, and waits for none itself. */
  #guarded<T>(what: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const refusal = this.#refusal(what, signal)
    if (refusal !== undefined) return Promise.reject(refusal)
    const failed = (error: unknown): never => {
      throw error instanceof BackendUnavailableError ? error : redisFailure(this.#backend, what, error)
    }
    try {
      const calledOffFor = () => calledOff(this.#backend, what, 'unknown', signal as AbortSignal)
      return unlessAborted(work(), signal, calledOffFor).catch(failed)
    } catch (error) {
      // A client that throws instead of rejecting is treated alike.
      return Promise.reject(error).catch(failed)
    }
  }

  /** Why nothing can be sent now. */
  #refusal(what: string, signal: AbortSignal | undefined): Error | undefined {
    if (this.#ending.signal.aborted) return new ClosedError(`The ${this.#backend} backend`)
    if (signal?.aborted) return calledOff(this.#backend, what, 'not-applied', signal)
    if (this.#raw.isUsable) return undefined
    return new BackendUnavailableError(
      this.#backend,
      `the ${this.#raw.library} client is not connected, or has been closed; connect it before, and close it after Holdfast`,
      'not-applied',
    )
  }
}

function calledOff(backend: string, what: string, outcome: 'not-applied' | 'unknown', signal: AbortSignal) {
  return new BackendUnavailableError(backend, `${what}: called off`, outcome, { cause: signal.reason })
}

function adapt(client: unknown): RawRedis {
  if (typeof client === 'object' && client !== null) {
    const has = (method: string) => typeof (client as Record<string, unknown>)[method] === 'function'
    if (has('evalsha') && has('call') && has('duplicate')) return adaptIoRedis(client as IoRedisClient)
    // A pool has no connection of its own whose order of commands could be relied on.
    if (has('evalSha') && has('sendCommand') && has('duplicate') && has('withTypeMapping') && !has('execute'))
      return adaptNodeRedis(client as NodeRedisClient)
  }
  throw new InvalidArgumentError(
    'client',
    'must be a Redis or Cluster of ioredis (5 or 6), or what createClient, createCluster or createSentinel of ' +
      'node-redis (redis 5 or 6) returned.',
  )
}
