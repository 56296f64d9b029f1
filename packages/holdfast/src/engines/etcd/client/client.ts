/**
 * A client for a cluster of etcd: one connection at a time, to one member. It moves to another member when this one refuses
 * (no leader, a learner), cannot be reached, or leaves requests unanswered.
 *
 * A request goes to another member if it is certain that it was not applied, or if it only reads. A request that may be applied twice is
 * asked again while its call lasts, after a silence or an unknown outcome (`asking-again.ts`, ADR 0022). Every other request is sent
 * once; if its outcome is unknown, the caller is told so.
 *
 * Every request settles, also without a limit of its caller's and whatever the other side does: connecting, the token and each answer
 * have limits of their own, and no request is asked again after `ANSWER_LIMIT_MS`.
 */

import { callWith } from '../../../base/aborting.ts'
import { afterThisTurn, type Clock, judgeLate, type Timer } from '../../../base/clock.ts'
import { BackendUnavailableError, type HoldfastError, InvalidArgumentError } from '../../../base/errors.ts'
import { SingleFlight } from '../../../base/single-flight.ts'
import type { Call } from '../../../spi.ts'
import { AGAIN_AFTER_MS, askAgain } from './asking-again.ts'
import { ANSWER_LIMIT_MS, Channel, type EtcdTls, type Metadata } from './channel.ts'
import {
  asUnavailable,
  ConnectionError,
  isForAnotherMember,
  isStaleToken,
  malformed,
  messageOf,
} from './failures.ts'
import { type Answer, type Method, methods, type TxnRequest, type TxnResponse } from './messages.ts'
import { isAnswerTo, isRead } from './transactions.ts'

export interface EtcdClientOptions {
  /** `http://host:port` or `https://host:port`, in the order in which they are tried. */
  readonly hosts: readonly string[]
  readonly tls?: EtcdTls
  readonly username?: string
  readonly password?: string
}

/** For a connection to one member. Others are tried after it. */
const CONNECT_LIMIT_MS = 1_000
/** etcd makes its answer slow on purpose. */
const AUTHENTICATION_LIMIT_MS = 5_000
/** A request that was given up after so long without any answer on its connection says something about the connection. */
const STUCK_AFTER_MS = 500

export class EtcdClient {
  readonly backend: string
  readonly #options: EtcdClientOptions
  readonly #clock: Clock
  /** Which host is connected to next. */
  #next = 0
  #connecting: Promise<Channel> | undefined
  /** The one to which `#connecting` has led. */
  #channel: Channel | undefined
  /** Connections that were left while something was in flight on them. */
  readonly #left = new Set<Channel>()
  /** Callers share the request for it, and none of them alone cancels it (T102). */
  readonly #authenticating: SingleFlight<string>
  /** The result of `#authenticating`. */
  #token: string | undefined
  #isClosed = false
  /** Requests and messages on streams that were sent, for tests and measurements. */
  sent = 0

  constructor(backend: string, options: EtcdClientOptions, clock: Clock) {
    checkHosts(options.hosts)
    this.backend = backend
    this.#options = options
    this.#clock = clock
    const limit = { ms: AUTHENTICATION_LIMIT_MS, clock }
    this.#authenticating = new SingleFlight(backend, (signal) => this.#authenticate(callWith(signal)), limit)
  }

  /** `onAgain`: the request may be applied twice. It is called before each copy but the first. */
  async ask<Q, R extends Answer>(
    method: Method<Q, R>,
    message: Q,
    call: Call,
    onAgain?: () => void,
  ): Promise<R> {
    const untilMs = this.#clock.monotonicMs() + ANSWER_LIMIT_MS
    const asTold = (error: unknown) => this.#failure(error)
    const isRepeatable = onAgain !== undefined || repeatable.has(method) || changesNothing(method, message)
    try {
      if (!isRepeatable) return await this.#ask(method, message, untilMs, call)
      const send = (copy: Call, onSilence: () => void) => this.#ask(method, message, untilMs, copy, onSilence)
      const isOver = () => this.#isClosed
      return await askAgain({ clock: this.#clock, send, onAgain, untilMs, isOver, asTold }, call)
    } catch (error) {
      throw asTold(error)
    }
  }

  async #ask<Q, R extends Answer>(
    method: Method<Q, R>,
    message: Q,
    untilMs: number,
    call: Call,
    onSilence?: () => void,
  ): Promise<R> {
    let refusals = 0
    let hasNewToken = false
    for (;;) {
      let channel: Channel | undefined
      let metadata: Metadata | undefined
      try {
        channel = await this.#connected(call)
        metadata = await this.#metadata(call)
        return await this.#askOn(channel, method, message, metadata, call, onSilence)
      } catch (failure) {
        const error = changesNothing(method, message) ? asNotApplied(failure) : failure
        if (this.#clock.monotonicMs() >= untilMs) throw error
        if (isStaleToken(error) && metadata !== undefined && !hasNewToken) {
          hasNewToken = true
          this.forgetToken(metadata)
        } else if (isForAnotherMember(error) && channel !== undefined && ++refusals < this.hosts.length)
          this.leave(channel)
        else throw error
      }
    }
  }

  /** A connection, and what every request on it carries. For streams. */
  async connect(call: Call): Promise<{ readonly channel: Channel; readonly metadata: Metadata }> {
    try {
      return { channel: await this.#connected(call), metadata: await this.#metadata(call) }
    } catch (error) {
      throw this.#failure(error)
    }
  }

  /** Asks one member, on a connection of its own. */
  async askMember<Q, R extends Answer>(
    host: string,
    method: Method<Q, R>,
    message: Q,
    call: Call,
  ): Promise<R> {
    let channel: Channel | undefined
    try {
      channel = await Channel.open(host, this.#options.tls, this.#clock, CONNECT_LIMIT_MS)
      return await this.#askOn(channel, method, message, await this.#metadata(call), call)
    } catch (error) {
      throw this.#failure(error)
    } finally {
      channel?.destroy()
    }
  }

  get hosts(): readonly string[] {
    return this.#options.hosts
  }

  /** Requests and streams on the current connection, for tests. Those on connections that were left end with them. */
  get inFlight(): number {
    return this.#channel?.inFlight ?? 0
  }

  close(): void {
    this.#isClosed = true
    this.#authenticating.drop(new ConnectionError('the client is closed', 'not-applied'))
    this.#channel?.destroy()
    for (const left of this.#left) left.destroy()
  }

  /** The connection does not serve. The first caller that says so moves the next request to another member (T101). */
  leave(channel: Channel): void {
    channel.leave()
    if (this.#channel !== channel) return
    this.#channel = undefined
    this.#connecting = undefined
    this.#next++
    for (const left of this.#left) if (left.inFlight === 0) this.#left.delete(left)
    this.#left.add(channel)
  }

  /** The next request asks for another one than that with which a request was refused. */
  forgetToken({ token }: Metadata): void {
    if (token === undefined || this.#token !== token) return
    this.#token = undefined
    this.#authenticating.drop(new Error('the token is not valid any more'))
  }

  #failure(error: unknown): HoldfastError {
    return asUnavailable(this.backend, error)
  }

  async #askOn<Q, R extends Answer>(
    channel: Channel,
    method: Method<Q, R>,
    message: Q,
    metadata: Metadata,
    call: Call,
    onSilence?: () => void,
  ): Promise<R> {
    if (call.cancelled) throw this.#cancelled(call, 'not-applied')
    this.sent++
    const answersBefore = channel.answers
    const sentMs = this.#clock.monotonicMs()
    const asked = channel.ask(method, message, metadata)
    const leaveIfStuck = () => {
      const isLong = this.#clock.monotonicMs() - sentMs >= STUCK_AFTER_MS
      if (isLong && channel.answers === answersBefore) this.leave(channel)
    }
    let silence: Timer | undefined
    // A large answer may take longer. Asked for once more, it would come later.
    const listen = (pieces: number, onEnd: () => void) => {
      silence = judgeLate(this.#clock, AGAIN_AFTER_MS, () => {
        if (asked.pieces() > pieces) return listen(asked.pieces(), onEnd)
        leaveIfStuck()
        onEnd()
      })
    }
    if (onSilence !== undefined) listen(0, onSilence)
    const answer = await new Promise<R>((resolve, reject) => {
      const untie = call.onCancel(() => {
        reject(this.#cancelled(call, 'unknown'))
        // If this process itself was late, the answer may be there and not yet read.
        afterThisTurn(() => {
          leaveIfStuck()
          asked.cancel()
        })
      })
      asked.answer.then(resolve, reject).finally(() => {
        untie()
        silence?.cancel()
      })
    })
    if (isOther(method, message, answer)) {
      this.leave(channel)
      throw malformed(channel.host, 'it answers another request')
    }
    return answer
  }

  /** The current connection, or the first that can be made. Callers share the attempt. */
  async #connected(call: Call): Promise<Channel> {
    for (let tries = 1; ; tries++) {
      if (this.#isClosed) throw new ConnectionError('the client is closed', 'not-applied')
      this.#connecting ??= this.#connect()
      const connecting = this.#connecting
      const channel = await new Promise<Channel>((resolve, reject) => {
        const untie = call.onCancel(() => reject(this.#cancelled(call, 'not-applied')))
        connecting.then(resolve, reject).finally(untie)
      })
      if (channel.isOpen) return channel
      // A stopped member would accept the next connection, too.
      this.leave(channel)
      if (tries > this.hosts.length)
        throw new ConnectionError(`${channel.host} closes each connection at once`, 'not-applied')
    }
  }

  #connect(): Promise<Channel> {
    const connecting = (async () => {
      const { hosts, tls } = this.#options
      for (let tries = 1; ; tries++) {
        const host = hosts[this.#next % hosts.length] ?? ''
        try {
          const channel = await Channel.open(host, tls, this.#clock, CONNECT_LIMIT_MS)
          if (this.#isClosed) channel.destroy()
          this.#channel = channel
          return channel
        } catch (error) {
          this.#next++
          if (tries >= hosts.length || this.#isClosed) throw error
        }
      }
    })()
    connecting.catch(() => {
      if (this.#connecting === connecting) this.#connecting = undefined
    })
    return connecting
  }

  /** Every request asks for a leader: a member that is cut off refuses at once, and ends its streams. */
  async #metadata(call: Call): Promise<Metadata> {
    if (this.#options.username === undefined) return { hasleader: 'true' }
    return { hasleader: 'true', token: await this.#authenticating.join(call) }
  }

  async #authenticate(call: Call): Promise<string> {
    const { username: name = '', password = '' } = this.#options
    try {
      const channel = await this.#connected(call)
      const { token } = await this.#askOn(channel, methods.authenticate, { name, password }, {}, call)
      this.#token = token
      return token
    } catch (error) {
      const told = this.#failure(error)
      // Without a token nothing was asked for.
      if (!(told instanceof BackendUnavailableError)) throw told
      throw new ConnectionError(`no token: ${messageOf(error)}`, 'not-applied', { cause: error })
    }
  }

  #cancelled(call: Call, outcome: 'not-applied' | 'unknown'): BackendUnavailableError {
    const when = outcome === 'not-applied' ? ' before it was sent' : ''
    return new BackendUnavailableError(this.backend, `the call was cancelled${when}`, outcome, {
      cause: call.signal.reason,
    })
  }
}

function checkHosts(hosts: unknown): void {
  const isUrl = (host: unknown) => typeof host === 'string' && /^https?:\/\/[^/@]+$/.test(host)
  if (!Array.isArray(hosts) || hosts.length === 0 || !hosts.every(isUrl))
    throw new InvalidArgumentError(
      'hosts',
      'must be a list of URLs such as http://127.0.0.1:2379, without a path.',
    )
}

/** Without an answer a read has changed nothing, so it may be sent again. */
function asNotApplied(error: unknown): unknown {
  return error instanceof ConnectionError
    ? new ConnectionError(error.message, 'not-applied', { cause: error })
    : error
}

const reads: ReadonlySet<unknown> = new Set([
  methods.range,
  methods.memberList,
  methods.status,
  methods.leaseTimeToLive,
])

/** Prolongs a lease once more, or ends one that has ended. */
const repeatable: ReadonlySet<unknown> = new Set([methods.leaseKeepAlive, methods.leaseRevoke])

function changesNothing(method: unknown, message: unknown): boolean {
  return method === methods.txn ? isRead(message as TxnRequest) : reads.has(method)
}

/** What a member answers must fit what it was asked: an answer without the reads of a transaction is not an empty one. */
function isOther(method: unknown, message: unknown, answer: Answer): boolean {
  return method === methods.txn && !isAnswerTo(message as TxnRequest, answer as TxnResponse)
}
