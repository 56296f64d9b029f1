/**
 * What the Redis backends and the Redis guard know of the user's client: scripts by SHA, plain commands to the
 * primaries, messages, and connections of our own. One interface for every supported library and topology.
 *
 * Every failure is a `BackendUnavailableError` that says whether the command may have been applied, or an
 * `UnsupportedError` if trying again cannot help: a wrong password, a right that is missing, a closed client. A call whose
 * signal aborts settles at once with `unknown`: the client may send the command later all the same, from its offline
 * queue or after reconnecting. Time limits are the caller's.
 */

import { unlessAborted } from '../../base/aborting.ts'
import { afterThisTurn, type Clock, systemClock } from '../../base/clock.ts'
import {
  BackendUnavailableError,
  type CallOutcome,
  ClosedError,
  isHoldfastError,
  UnsupportedError,
} from '../../base/errors.ts'
import { type Random, systemRandom } from '../../base/ids.ts'
import type { RedisClient } from './client.ts'
import {
  isServerError,
  notConnected,
  redisFailure,
  remedyOf,
  serverCodeOf,
  withoutSecrets,
} from './failures.ts'
import { type ConnectionLosses, lossesOf, UnansweredCalls } from './losses.ts'
import type { RawConnection, RawNode, RawRedis, RedisReply, RedisTopology } from './raw.ts'
import { adapt } from './recognizing.ts'
import type { RedisScript } from './script.ts'
import { Subscriber, type Subscription } from './subscriber.ts'
import { isConnected, reasonOf, type Trouble, troubleOf } from './trouble.ts'

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

/** A connection of our own to one primary; it does not come back when it is lost, and sends nothing twice. */
export interface DedicatedConnection extends RedisNode {
  /** False once it is lost. */
  isOpen(): boolean
  /** As `run` of `RedisConnection`. */
  run: RedisConnection['run']
  close(): void
}

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

interface PromptConnection {
  readonly opening: Promise<DedicatedConnection>
  /** Once it is open. */
  own?: DedicatedConnection
  /** `lossCount` when it was opened. */
  readonly losses: number
}

const ignore = () => {}

type Evaluating = Pick<RawRedis, 'evaluate'>

/** A server that does not know the script says so before it does anything, and is given the whole of it then. */
function evaluated(
  raw: Evaluating,
  script: RedisScript,
  keys: readonly string[],
  args: readonly string[],
): Promise<RedisReply> {
  return raw.evaluate('EVALSHA', script.sha1, keys, args).catch((error: unknown) => {
    if (serverCodeOf(error) !== 'NOSCRIPT') throw error
    return raw.evaluate('EVAL', script.source, keys, args)
  }) as Promise<RedisReply>
}

/** A subscription at every primary of a Cluster. */
export interface Presence {
  close(): void
}

export class RedisConnection {
  readonly topology: RedisTopology
  /** Where the client was told to connect to; no password. */
  readonly address: string
  /** What the client puts in front of every key; keys are given to `run` without it. */
  readonly keyPrefix: string
  readonly #client: RedisClient
  readonly #trouble: Trouble
  readonly #raw: RawRedis
  readonly #backend: string
  readonly #subscriber: Subscriber
  readonly #losses: ConnectionLosses
  readonly #unanswered = new UnansweredCalls()
  #isWatchingLosses = false
  /** What ends our listening to the client's troubles. */
  readonly #watches = new Set<() => void>()
  readonly #dedicated = new Set<Pick<RawConnection, 'close'>>()
  /** Connections of our own for `runPromptly`, by the primary. */
  readonly #prompt = new Map<string, PromptConnection>()
  #isHeldUp = false
  readonly #clock: Clock
  /** Whatever is being opened when it aborts is not opened. */
  readonly #ending = new AbortController()

  constructor(client: RedisClient, options: RedisConnectionOptions) {
    const { backend, clock = systemClock, random = systemRandom } = options
    this.#raw = adapt(client)
    this.#client = client
    this.#trouble = troubleOf(client)
    this.#backend = backend
    this.#clock = clock
    this.topology = this.#raw.topology
    this.address = this.#raw.address
    this.keyPrefix = this.#raw.keyPrefix
    this.#subscriber = new Subscriber((stop) => this.#raw.subscriber(stop), clock, random)
    this.#losses = lossesOf(client)
  }

  get writesOncePerTurn(): boolean {
    return this.#raw.writesOncePerTurn
  }

  /** The client writes commands to the socket now, instead of queueing them. */
  get isConnected(): boolean {
    return isConnected(this.#client)
  }

  /**
   * Goes up whenever the client may have lost a connection. If it is another number when an answer comes than it was when
   * the call was made, the client may have sent the call twice, and the answer may be that of the second copy.
   */
  lossCount(): number {
    this.#watchLosses()
    return this.#losses.count
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
    return this.#guarded('script', signal, () =>
      this.#settling(() => evaluated(this.#raw, script, keys, args)),
    )
  }

  /**
   * Like `run`, for a script that may run twice. If the client is connected and does not answer within `afterMs`, the
   * script also goes over a connection of our own, and the first answer counts if it confirms: on the user's connection
   * everything waits behind a command that blocks, such as BLPOP (T85). Anything else is for the client to answer.
   */
  runPromptly(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    signal: AbortSignal | undefined,
    { afterMs, openWithinMs, confirms }: Promptness,
  ): Promise<RedisReply> {
    return new Promise((resolve, reject) => {
      let isSettled = false
      const askPromptly = async () => {
        if (isSettled || !this.isConnected) return
        const reply = await this.#evaluatePromptly(script, keys, args, signal, openWithinMs)
        if (isSettled) return
        this.#isHeldUp = true
        if (confirms(reply)) resolve(reply)
      }
      // After a turn that took long, the client's answer may be in the socket already: it is read before this turn ends.
      // If asking promptly fails as well, the client's own answer is the one to wait for.
      const timer = this.#clock.setTimer(afterMs, () => afterThisTurn(() => askPromptly().catch(ignore)))
      const answered = this.run(script, keys, args, signal).finally(() => {
        isSettled = true
        timer.cancel()
      })
      answered.then((reply) => {
        this.#isHeldUp = false
        resolve(reply)
      }, reject)
    })
  }

  /** Why the client does not answer although the server does; undefined if nothing is known. */
  get heldUpBy(): string | undefined {
    if (!this.#isHeldUp) return undefined
    return (
      'another connection was answered meanwhile, so a command that blocks, such as BLPOP or XREAD BLOCK, seems to hold up ' +
      'the client: give Holdfast a client of its own, as client.duplicate() makes one'
    )
  }

  async #evaluatePromptly(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    signal: AbortSignal | undefined,
    openWithinMs: number,
  ): Promise<RedisReply> {
    const [first = ''] = keys
    const owner = this.ownerOf(first)
    const prompt = this.#promptConnection(owner, first, openWithinMs)
    const own = await unlessAborted(prompt.opening, signal, () => signal?.reason)
    try {
      return await own.run(script, keys, args, signal)
    } catch (error) {
      // Others use it as well, so a call that was cancelled does not end it. One that timed out does: it may be lost silently.
      const hasTimedOut = isHoldfastError(signal?.reason, 'BACKEND_UNAVAILABLE')
      if (hasTimedOut || !own.isOpen()) this.#dropPrompt(owner, prompt)
      throw error
    }
  }

  /** The one that is open, or being opened; another one if the client has been reconnected since, maybe to another primary. */
  #promptConnection(owner: string, key: string, openWithinMs: number): PromptConnection {
    const losses = this.lossCount()
    const kept = this.#prompt.get(owner)
    if (kept !== undefined) {
      if (kept.losses === losses && kept.own?.isOpen() !== false) return kept
      this.#dropPrompt(owner, kept)
    }
    const limit = new AbortController()
    const timer = this.#clock.setTimer(openWithinMs, () =>
      limit.abort(new Error(`no connection within ${openWithinMs} ms`)),
    )
    const opening = this.dedicated(key, limit.signal).finally(() => timer.cancel())
    const prompt: PromptConnection = { opening, losses }
    this.#prompt.set(owner, prompt)
    opening.then(
      (own) => {
        prompt.own = own
      },
      () => this.#dropPrompt(owner, prompt),
    )
    return prompt
  }

  #dropPrompt(owner: string, prompt: PromptConnection): void {
    if (this.#prompt.get(owner) === prompt) this.#prompt.delete(owner)
    prompt.opening.then((own) => own.close(), ignore)
  }

  /**
   * Resolves when the client is connected, and rejects as soon as one of its tries to connect fails. What is sent for that
   * leaves no trace, so nothing has been applied then.
   */
  async reach(signal?: AbortSignal): Promise<void> {
    const refusal = this.#refusal('connecting', signal)
    if (refusal !== undefined) throw refusal
    if (isConnected(this.#client) || this.#raw.ping === undefined) return
    const failed = new AbortController()
    const stopWatching = this.#watch((error) =>
      failed.abort(notConnected(this.#backend, 'the client is not connected', error)),
    )
    try {
      await unlessAborted(
        this.#guarded('connecting', signal, () => this.#answered()),
        failed.signal,
        () => failed.signal.reason,
      )
    } finally {
      stopWatching()
    }
  }

  /** An error of the server is an answer as well, unless it does not let us in. */
  async #answered(): Promise<void> {
    const { ping } = this.#raw
    if (ping === undefined) return
    await this.#settling(ping).catch((error: unknown) => {
      const isAnswer = error instanceof Error && isServerError(error)
      if (!isAnswer || (serverCodeOf(error) !== 'NOPERM' && remedyOf(error.message) !== null)) throw error
    })
  }

  /**
   * The library goes on in another database if the server has none of the number that it was told, and says so at most to
   * who listens to its errors: that is found out here. A server that does not tell is believed.
   */
  async checkDatabase(signal?: AbortSignal): Promise<void> {
    const believed = this.#raw.believedDatabase?.() ?? 0
    if (believed === 0) return
    const [node] = await this.nodes(signal)
    const told = await node?.send(['CLIENT', 'INFO'], signal).catch(() => null)
    const [, actual] = /\bdb=(\d+)/.exec(String(told)) ?? []
    if (actual === undefined || Number(actual) === believed) return
    throw new UnsupportedError(
      `${this.#backend}: the client was told to use database ${believed}, and is in database ${actual}. ` +
        (remedyOf('ERR DB index is out of range') ?? ''),
    )
  }

  /** All primaries: one, or those of the Cluster. */
  async nodes(signal?: AbortSignal): Promise<readonly RedisNode[]> {
    const nodes = await this.#guarded('looking for the primaries', signal, () => this.#raw.primaries())
    return nodes.map(({ label, send }) =>
      this.#nodeOf({ label, send: (args) => this.#settling(() => send(args)) }),
    )
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
    const { keyPrefix } = this
    const raw: Evaluating = {
      evaluate: (command, script, keys, args) =>
        connection.send([
          command,
          script,
          String(keys.length),
          ...keys.map((key) => keyPrefix + key),
          ...args,
        ]),
    }
    const run: DedicatedConnection['run'] = (script, keys, args, signal) =>
      this.#guarded('script', signal, () => evaluated(raw, script, keys, args))
    return { ...this.#nodeOf(connection), isOpen: connection.isOpen, run, close }
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

  /**
   * Subscribes at every primary of a Cluster, over connections of our own, so that scripts there see the subscription.
   * It does not come back by itself when one of them is lost.
   */
  async subscribeAtAll(
    channels: readonly string[],
    onLost: () => void,
    signal: AbortSignal,
  ): Promise<Presence> {
    const stop = AbortSignal.any([this.#ending.signal, signal])
    const opened = await this.#guarded('subscribing', stop, async () => {
      const all = (await this.#raw.subscribers?.(stop)) ?? []
      for (const each of all) this.#dedicated.add(each)
      return all
    })
    const close = () => {
      for (const each of opened) {
        this.#dedicated.delete(each)
        each.close()
      }
    }
    let isOver = false
    const lose = () => {
      if (isOver) return
      isOver = true
      close()
      onLost()
    }
    try {
      const subscribing = opened.flatMap((each) =>
        channels.map((channel) => each.subscribe(channel, () => {})),
      )
      await this.#guarded('subscribing', stop, () => Promise.all(subscribing))
    } catch (error) {
      close()
      throw error
    }
    for (const each of opened) each.onLost(lose)
    return {
      close() {
        isOver = true
        close()
      },
    }
  }

  /** Ends what we opened; the user's client stays as it is. */
  close(): void {
    this.#ending.abort(new ClosedError(`The ${this.#backend} backend`))
    this.#subscriber.close()
    for (const connection of this.#dedicated) connection.close()
    this.#dedicated.clear()
    // The client may keep what it could not send for long, and nobody is told any more.
    for (const stop of this.#watches) stop()
    this.#watches.clear()
  }

  #watch(onFailed?: (error: unknown) => void): () => void {
    const stop = this.#trouble.watch(onFailed)
    this.#watches.add(stop)
    return () => {
      this.#watches.delete(stop)
      stop()
    }
  }

  #nodeOf(node: RawNode): RedisNode {
    return {
      label: node.label,
      send: (args, signal) =>
        this.#guarded(args[0] ?? 'command', signal, () => node.send(args)) as Promise<RedisReply>,
    }
  }

  /** A call of the user's client, which settles also if the client forgets it. */
  #settling<T>(send: () => Promise<T>): Promise<T> {
    if (this.#raw.forgetsUnanswered !== true) return send()
    this.#watchLosses()
    const wasConnected = this.isConnected
    return this.#unanswered.track(send(), wasConnected)
  }

  #watchLosses(): void {
    if (this.#isWatchingLosses || this.#ending.signal.aborted) return
    this.#isWatchingLosses = true
    this.#watches.add(this.#losses.watch(this.#unanswered))
  }

  /** Every call goes this way, tens of thousands a second: so it makes one promise, and waits for none itself. */
  #guarded<T>(what: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const refusal = this.#refusal(what, signal)
    if (refusal !== undefined) return Promise.reject(refusal)
    // Only so is it known later why there was no answer.
    const stopWatching = isConnected(this.#client) ? undefined : this.#watch()
    const failed = (error: unknown): never => {
      throw isHoldfastError(error) ? error : redisFailure(this.#backend, what, error)
    }
    try {
      const cancelledFor = () => this.#cancelledCall(what, 'unknown', signal as AbortSignal)
      const settling = unlessAborted(work(), signal, cancelledFor).catch(failed)
      return stopWatching === undefined ? settling : settling.finally(stopWatching)
    } catch (error) {
      // A client that throws instead of rejecting is treated alike.
      stopWatching?.()
      return Promise.reject(error).catch(failed)
    }
  }

  /** Why nothing can be sent now. */
  #refusal(what: string, signal: AbortSignal | undefined): Error | undefined {
    if (this.#ending.signal.aborted) return new ClosedError(`The ${this.#backend} backend`)
    if (signal?.aborted) return this.#cancelledCall(what, 'not-applied', signal)
    if (this.#raw.isUsable) return undefined
    // Nobody but the user can connect it, so there is nothing to wait for.
    return new UnsupportedError(
      `${this.#backend}: the ${this.#raw.library} client is not connected, or has been closed. Connect it before, and ` +
        'close it after Holdfast.',
    )
  }

  #cancelledCall(what: string, outcome: CallOutcome, signal: AbortSignal): BackendUnavailableError {
    const { reason } = signal
    // An error of Holdfast's own is told by whoever has called it off.
    const why = reason instanceof Error && !isHoldfastError(reason) ? ` (${reason.message})` : ''
    const last = isConnected(this.#client) ? undefined : this.#trouble.last
    const said = last === undefined ? '' : ` (${reasonOf(last)})`
    const state = isConnected(this.#client) ? '' : `; the client is not connected${said}`
    return new BackendUnavailableError(this.#backend, `${what}: cancelled${why}${state}`, outcome, {
      cause: last === undefined ? reason : withoutSecrets(last),
    })
  }
}
