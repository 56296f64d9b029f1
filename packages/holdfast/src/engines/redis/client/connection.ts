/**
 * The user's client, as the Redis backends and the Redis guard know it: scripts by SHA, plain commands to the
 * primaries, messages, and connections of our own. One interface for every supported library and topology.
 *
 * Every failure is a `BackendUnavailableError` that says whether the command may have been applied, or an
 * `UnsupportedError` if trying again cannot help: a wrong password, a right that is missing, a closed client. A call whose
 * signal aborts settles at once with `unknown`: the client may send the command later all the same, from its offline
 * queue or after reconnecting. Time limits are the caller's.
 */

import { onAborted, unlessAborted } from '../../../base/aborting.ts'
import { type Clock, systemClock } from '../../../base/clock.ts'
import {
  BackendUnavailableError,
  type CallOutcome,
  ClosedError,
  type HoldfastError,
  isHoldfastError,
  UnsupportedError,
  withNote,
} from '../../../base/errors.ts'
import { type Random, systemRandom } from '../../../base/ids.ts'
import type { RedisClient } from './client.ts'
import { ClientState, type ClientWatcher } from './client-state.ts'
import {
  isServerError,
  notConnected,
  reasonOf,
  redisFailure,
  remedyOf,
  serverCodeOf,
  withoutSecrets,
} from './failures.ts'
import { PromptConnections, type Promptness } from './prompt.ts'
import { evaluation, type RawConnection, type RawNode, type RawRedis, type RedisReply } from './raw.ts'
import { adapt } from './recognizing.ts'
import type { RedisScript } from './script.ts'
import { Subscriber, type Subscription } from './subscriber.ts'

export interface RedisConnectionOptions {
  /** The speaker of errors: `redis`, `redlock`. */
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

/** A server that does not know the script says so before it does anything, and is given the whole of it then. */
function evaluate(
  raw: Pick<RawRedis, 'evaluate'>,
  script: RedisScript,
  keys: readonly string[],
  args: readonly string[],
): Promise<RedisReply> {
  return raw.evaluate('EVALSHA', script.sha1, keys, args).catch((error: unknown) => {
    if (serverCodeOf(error) !== 'NOSCRIPT') throw error
    return raw.evaluate('EVAL', script.source, keys, args)
  }) as Promise<RedisReply>
}

export class RedisConnection {
  readonly isCluster: boolean
  /** Where the client was told to connect to; no password. */
  readonly address: string
  /** The prefix that the client puts in front of every key; keys are given to `run` without it. */
  readonly keyPrefix: string
  readonly #state: ClientState
  readonly #raw: RawRedis
  readonly #backend: string
  readonly #subscriber: Subscriber
  readonly #prompt: PromptConnections
  /** Functions that end our listening to the client's events. */
  readonly #watches = new Set<() => void>()
  #isWatchingLosses = false
  #isClosed = false
  /** Calls in flight, and calls not sent yet, of a client that forgets them when its connection closes: we reject them then. */
  readonly #sent = new Set<(error: unknown) => void>()
  readonly #unsent = new Set<(error: unknown) => void>()
  readonly #dedicated = new Set<Pick<RawConnection, 'close'>>()
  /** Openings in progress end when it aborts. */
  readonly #ending = new AbortController()

  constructor(client: RedisClient, options: RedisConnectionOptions) {
    const { backend, clock = systemClock, random = systemRandom } = options
    this.#raw = adapt(client)
    this.#state = ClientState.of(client)
    this.#backend = backend
    this.isCluster = this.#raw.isCluster
    this.address = this.#raw.address
    this.keyPrefix = this.#raw.keyPrefix
    this.#subscriber = new Subscriber((stop) => this.#raw.subscriber(stop), backend, clock, random)
    this.#prompt = new PromptConnections(this, clock)
  }

  get writesOncePerTurn(): boolean {
    return this.#raw.writesOncePerTurn
  }

  /** The client writes commands to the socket now, instead of queueing them. */
  get isConnected(): boolean {
    return this.#state.isReady
  }

  /**
   * Goes up whenever the client may have lost a connection. If it is another number when an answer comes than it was when
   * the call was made, the client may have sent the call twice, and the answer may be that of the second copy.
   */
  lossCount(): number {
    if (!this.#isWatchingLosses) this.#watchLosses()
    return this.#state.lossCount
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
    return this.#send('script', signal, () => evaluate(this.#raw, script, keys, args))
  }

  /**
   * Runs a script for a call that is never cancelled, and reads its reply. Requests for locks go this way, tens of thousands a
   * second: while the client is connected, nothing is made for what rarely happens. `isRepeated`: the client may have sent the
   * call twice, and this may be the answer to the second copy.
   */
  ask<T>(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    read: (reply: RedisReply, isRepeated: boolean) => T,
  ): Promise<T> {
    if (!this.#isWatchingLosses) this.#watchLosses()
    const losses = this.#state.lossCount
    const answered = (reply: RedisReply) => read(reply, losses !== this.#state.lossCount)
    if (this.#isClosed || this.#raw.forgetsUnanswered === true || !this.#state.isReady)
      return this.run(script, keys, args).then(answered)
    const failed = (error: unknown) => {
      if (serverCodeOf(error) === 'NOSCRIPT') return this.run(script, keys, args).then(answered)
      throw isHoldfastError(error) ? error : this.#failureOf('script', error)
    }
    try {
      return this.#raw
        .evaluate('EVALSHA', script.sha1, keys, args)
        .then(answered as (reply: unknown) => T, failed)
    } catch (error) {
      // A client that throws instead of rejecting is treated alike.
      return Promise.reject(this.#failureOf('script', error))
    }
  }

  /**
   * Like `run`, for a script that may run twice. If the client is connected and does not answer within `afterMs`, the
   * script also goes over a connection of our own, and the first answer counts if it confirms. Anything else is for the
   * client to answer.
   */
  runPromptly(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    signal: AbortSignal | undefined,
    promptness: Promptness,
  ): Promise<RedisReply> {
    return this.#prompt.run(keys[0] ?? '', (on) => on.run(script, keys, args, signal), signal, promptness)
  }

  /** Why the client does not answer; undefined if nothing is known. */
  get whyUnanswered(): string | undefined {
    return this.#state.isReady ? this.heldUpBy : this.#unconnected()
  }

  /** A library that gives up a call need not say why it could not send it, so the client's state is asked. */
  #failureOf(what: string, error: unknown): HoldfastError {
    const failure = redisFailure(this.#backend, what, error)
    const isOurs = this.#state.isReady || (error instanceof Error && isServerError(error))
    if (isOurs || !isHoldfastError(failure, 'BACKEND_UNAVAILABLE')) return failure
    return withNote(failure, this.#unconnected(reasonOf(error)))
  }

  /** `known`: what has been said already. */
  #unconnected(known = ''): string {
    const { trouble } = this.#state
    const reason = trouble === undefined ? known : reasonOf(trouble)
    const said = reason === known ? '' : ` (${reason})`
    return `the client is not connected${said}. Check that Redis runs, and the host and port of the client`
  }

  /** Why the client does not answer although the server does. */
  get heldUpBy(): string | undefined {
    if (!this.#prompt.isHeldUp) return undefined
    return (
      'another connection was answered meanwhile, so a command that blocks, such as BLPOP or XREAD BLOCK, seems to hold up ' +
      'the client: give Holdfast a client of its own, as client.duplicate() makes one'
    )
  }

  /**
   * Resolves when the client is connected, and rejects as soon as one of its tries to connect fails. What is sent for that
   * leaves no trace, so nothing has been applied then.
   */
  async reach(signal?: AbortSignal): Promise<void> {
    const refusal = this.#refusal('connecting', signal)
    if (refusal !== undefined) throw refusal
    const { ping } = this.#raw
    if (this.#state.isReady || ping === undefined) return
    const failed = new AbortController()
    const stopWatching = this.#state.watch({
      onFailed: (error) => failed.abort(notConnected(this.#backend, 'the client is not connected', error)),
    })
    try {
      const answered = this.#send('connecting', signal, () => answerTo(ping))
      await unlessAborted(answered, failed.signal, () => failed.signal.reason)
    } finally {
      stopWatching()
    }
  }

  /**
   * ioredis goes on in another database if the server has none of the number that it was told, and says so at most to the
   * listeners of its errors: that is found out here. A server that does not tell is believed.
   */
  async checkDatabase(signal?: AbortSignal): Promise<void> {
    const { database } = this.#raw
    if (database === undefined) return
    const [node] = await this.nodes(signal)
    const told = await node?.send(['CLIENT', 'INFO'], signal).catch(() => null)
    const [, actual] = /\bdb=(\d+)/.exec(String(told)) ?? []
    if (actual === undefined || Number(actual) === database) return
    throw new UnsupportedError(
      `${this.#backend}: the client was told to use database ${database}, and is in database ${actual}. ` +
        (remedyOf('ERR DB index is out of range') ?? ''),
    )
  }

  /** All primaries: one, or those of the Cluster. */
  async nodes(signal?: AbortSignal): Promise<readonly RedisNode[]> {
    const nodes = await this.#send('looking for the primaries', signal, () => this.#raw.primaries())
    return nodes.map((node) => this.#nodeOf(node))
  }

  /** Which primary has this key now, as far as the client knows: the same text for the same one. */
  ownerOf(key: string): string {
    return this.#raw.ownerOf(key)
  }

  /** A connection of our own to the primary that has this key: for commands that block, such as WAIT. */
  async dedicated(key: string, signal?: AbortSignal): Promise<DedicatedConnection> {
    const stop = AbortSignal.any([this.#ending.signal, ...(signal === undefined ? [] : [signal])])
    const connection = await this.#send('connecting', stop, async () => {
      const own = await this.#raw.dedicated(key, stop)
      this.#dedicated.add(own)
      return own
    })
    let isClosed = false
    const close = () => {
      isClosed = true
      this.#dedicated.delete(connection)
      connection.close()
    }
    const raw: Pick<RawRedis, 'evaluate'> = {
      evaluate: (command, script, keys, args) =>
        connection.send(evaluation(command, script, this.keyPrefix, keys, args)),
    }
    const run: DedicatedConnection['run'] = (script, keys, args, runSignal) =>
      this.#send('script', runSignal, () => evaluate(raw, script, keys, args))
    return { ...this.#nodeOf(connection), isOpen: () => !isClosed && connection.isOpen(), run, close }
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
    return this.#send('subscribing', signal, () => this.#subscriber.subscribe(channel, onMessage, onResumed))
  }

  /** Ends what we opened; the user's client stays as it is. */
  close(): void {
    this.#isClosed = true
    this.#ending.abort(new ClosedError(`The ${this.#backend} backend`))
    this.#subscriber.close()
    for (const connection of this.#dedicated) connection.close()
    this.#dedicated.clear()
    // The client may keep what it could not send for long, and no caller is told any more.
    for (const stop of this.#watches) stop()
    this.#watches.clear()
  }

  #nodeOf(node: RawNode): RedisNode {
    return {
      label: node.label,
      send: (args, signal) =>
        this.#send(args[0] ?? 'command', signal, () => node.send(args) as Promise<RedisReply>),
    }
  }

  /** A call whose signal aborts settles at once; so does one that the client has forgotten. */
  #send<T>(what: string, signal: AbortSignal | undefined, start: () => Promise<T>): Promise<T> {
    const refusal = this.#refusal(what, signal)
    if (refusal !== undefined) return Promise.reject(refusal)
    return new Promise<T>((resolve, reject) => {
      const fail = (error: unknown) => {
        settled()
        reject(isHoldfastError(error) ? error : this.#failureOf(what, error))
      }
      const stopListening =
        signal === undefined
          ? undefined
          : onAborted(signal, () => fail(this.#cancelledCall(what, 'unknown', signal)))
      // Only so is it known later why there was no answer.
      const stopWatching = this.isConnected ? undefined : this.#watch({})
      const forgets = this.#raw.forgetsUnanswered === true
      const settled = () => {
        stopListening?.()
        stopWatching?.()
        if (forgets && !this.#sent.delete(fail)) this.#unsent.delete(fail)
      }
      if (forgets) this.#remember(fail)
      try {
        start().then((value) => {
          settled()
          resolve(value)
        }, fail)
      } catch (error) {
        // A client that throws instead of rejecting is treated alike.
        fail(error)
      }
    })
  }

  #watch(watcher: ClientWatcher): () => void {
    const stop = this.#state.watch(watcher)
    this.#watches.add(stop)
    return () => {
      this.#watches.delete(stop)
      stop()
    }
  }

  #watchLosses(): void {
    if (this.#isClosed) return
    this.#isWatchingLosses = true
    this.#watch({
      onReady: () => {
        for (const fail of this.#unsent) this.#sent.add(fail)
        this.#unsent.clear()
      },
      onClosed: () => {
        const lost = new Error('the connection was lost before the answer came')
        for (const fail of [...this.#sent]) fail(lost)
      },
    })
  }

  /** Otherwise a call that the client forgets would never settle (T76, calls that never settle). */
  #remember(fail: (error: unknown) => void): void {
    if (!this.#isWatchingLosses) this.#watchLosses()
    if (this.isConnected) this.#sent.add(fail)
    else this.#unsent.add(fail)
  }

  /** Why nothing can be sent now. */
  #refusal(what: string, signal: AbortSignal | undefined): Error | undefined {
    if (this.#isClosed) return new ClosedError(`The ${this.#backend} backend`)
    if (signal?.aborted) return this.#cancelledCall(what, 'not-applied', signal)
    if (this.#raw.isUsable) return undefined
    // Only the user can connect it, so there is nothing to wait for.
    return new UnsupportedError(
      `${this.#backend}: the ${this.#raw.library} client is not connected, or has been closed. Connect it before, and ` +
        'close it after Holdfast.',
    )
  }

  #cancelledCall(what: string, outcome: CallOutcome, signal: AbortSignal): BackendUnavailableError {
    const { reason } = signal
    const { isReady, trouble } = this.#state
    if (!isReady)
      return new BackendUnavailableError(this.#backend, `${what}: ${this.#unconnected()}`, outcome, {
        cause: trouble === undefined ? reason : withoutSecrets(trouble),
      })
    // An error of Holdfast's own is told by the caller that has cancelled it.
    const why = reason instanceof Error && !isHoldfastError(reason) ? ` (${reason.message})` : ''
    return new BackendUnavailableError(this.#backend, `${what}: cancelled${why}`, outcome, { cause: reason })
  }
}

/** An error of the server is an answer as well, unless it does not let us in. */
async function answerTo(ping: () => Promise<unknown>): Promise<void> {
  try {
    await ping()
  } catch (error) {
    const isAnswer = error instanceof Error && isServerError(error)
    if (!isAnswer || (serverCodeOf(error) !== 'NOPERM' && remedyOf(error.message) !== null)) throw error
  }
}
