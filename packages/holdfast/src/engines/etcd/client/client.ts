/**
 * A client for a cluster of etcd: one connection at a time, to one member (`kit/members.ts`). It moves to another member when this one
 * refuses (no leader, a learner), cannot be reached, or leaves requests unanswered.
 *
 * A request goes to another member if it is certain that it was not applied, or if it only reads. A request that may be applied twice is
 * asked again while its call lasts, after a silence or an unknown outcome (`kit/asking-again.ts`, ADR 0022). Every other request is sent
 * once; if its outcome is unknown, the caller is told so.
 *
 * Every request settles, also without a limit of its caller's and whatever the other side does: connecting, the token and each answer
 * have limits of their own, and no request is asked again after `ANSWER_LIMIT_MS`.
 */

import { callWith, cancelledCall } from '../../../base/aborting.ts'
import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError, type HoldfastError, InvalidArgumentError } from '../../../base/errors.ts'
import { SharedWork } from '../../../base/shared-work.ts'
import { askAgain } from '../../../kit/asking-again.ts'
import { asFailedRead, ConnectionError, malformed, messageOf } from '../../../kit/connect-failure.ts'
import { Members } from '../../../kit/members.ts'
import type { Call } from '../../../spi.ts'
import { ANSWER_LIMIT_MS, Channel, type EtcdTls, type Metadata } from './channel.ts'
import { asUnavailable, isForAnotherMember, isStaleToken } from './failures.ts'
import { type EtcdAnswer, type Method, methods, type TxnRequest, type TxnResponse } from './messages.ts'
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
/** Requests in flight when a leader dies are answered so long after the election, at the latest (T98, dropped proposals). */
const AGAIN_AFTER_MS = 1_000

export class EtcdClient {
  readonly backend: string
  readonly #options: EtcdClientOptions
  readonly #clock: Clock
  readonly #members: Members<Channel>
  /** Callers share the request for it, and none of them alone cancels it (T102, shared work). */
  readonly #authenticating: SharedWork<string>
  /** The result of `#authenticating`. */
  #token: string | undefined
  /** Requests and messages on streams that were sent, for tests and measurements. */
  sent = 0

  constructor(backend: string, options: EtcdClientOptions, clock: Clock) {
    checkHosts(options.hosts)
    this.backend = backend
    this.#options = options
    this.#clock = clock
    this.#members = new Members({
      backend,
      hosts: options.hosts,
      clock,
      open: (host) => this.#open(host),
      notSent: (why) => new ConnectionError(why, 'not-applied'),
      isForAnotherMember,
    })
    const limit = { ms: AUTHENTICATION_LIMIT_MS, clock }
    this.#authenticating = new SharedWork(backend, (signal) => this.#authenticate(callWith(signal)), limit)
  }

  /** `onAgain`: the request may be applied twice. It is called before each copy but the first. */
  async ask<Q, R extends EtcdAnswer>(
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
      const isOver = () => this.#members.isClosed
      const terms = { backend: this.backend, clock: this.#clock, send, onAgain, untilMs, isOver, asTold }
      return await askAgain({ ...terms, isForAnotherMember }, call)
    } catch (error) {
      throw asTold(error)
    }
  }

  #ask<Q, R extends EtcdAnswer>(
    method: Method<Q, R>,
    message: Q,
    untilMs: number,
    call: Call,
    onSilence?: () => void,
  ): Promise<R> {
    const ask = async (channel: Channel) => {
      for (let hasNewToken = false; ; hasNewToken = true) {
        const metadata = await this.#metadata(call)
        try {
          return await this.#askOn(channel, method, message, metadata, call, onSilence)
        } catch (failure) {
          const error = changesNothing(method, message) ? asFailedRead(failure) : failure
          if (!isStaleToken(error) || hasNewToken || this.#clock.monotonicMs() >= untilMs) throw error
          this.forgetToken(metadata)
        }
      }
    }
    return this.#members.ask(ask, untilMs, call)
  }

  /** A connection, and what every request on it carries. For streams. */
  async connect(call: Call): Promise<{ readonly channel: Channel; readonly metadata: Metadata }> {
    try {
      return { channel: await this.#members.connected(call), metadata: await this.#metadata(call) }
    } catch (error) {
      throw this.#failure(error)
    }
  }

  /** Asks one member, on a connection of its own. */
  async askMember<Q, R extends EtcdAnswer>(
    host: string,
    method: Method<Q, R>,
    message: Q,
    call: Call,
  ): Promise<R> {
    let channel: Channel | undefined
    try {
      channel = await this.#open(host)
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
    return this.#members.current?.inFlight ?? 0
  }

  close(): void {
    this.#authenticating.drop(new ConnectionError('the client is closed', 'not-applied'))
    this.#members.close()
  }

  /** The connection does not serve. */
  leave(channel: Channel): void {
    this.#members.leave(channel)
  }

  /** The next request asks for another one than that with which a request was refused. */
  forgetToken({ token }: Metadata): void {
    if (token === undefined || this.#token !== token) return
    this.#token = undefined
    this.#authenticating.drop(new Error('the token is not valid any more'))
  }

  #open(host: string): Promise<Channel> {
    return Channel.open(host, this.#options.tls, this.#clock, CONNECT_LIMIT_MS)
  }

  #failure(error: unknown): HoldfastError {
    return asUnavailable(this.backend, error)
  }

  async #askOn<Q, R extends EtcdAnswer>(
    channel: Channel,
    method: Method<Q, R>,
    message: Q,
    metadata: Metadata,
    call: Call,
    onSilence?: () => void,
  ): Promise<R> {
    if (call.cancelled) throw cancelledCall(this.backend, call.signal, 'not-applied')
    this.sent++
    const ask = () => channel.ask(method, message, metadata)
    const silence = onSilence && { ms: AGAIN_AFTER_MS, tell: onSilence }
    const answer = await this.#members.answered(channel, ask, call, silence)
    if (isOther(method, message, answer)) {
      this.leave(channel)
      throw malformed(channel.host, 'it answers another request')
    }
    return answer
  }

  /** Every request asks for a leader: a member that is cut off refuses at once, and ends its streams. */
  async #metadata(call: Call): Promise<Metadata> {
    if (this.#options.username === undefined) return { hasleader: 'true' }
    return { hasleader: 'true', token: await this.#authenticating.join(call) }
  }

  async #authenticate(call: Call): Promise<string> {
    const { username: name = '', password = '' } = this.#options
    try {
      const channel = await this.#members.connected(call)
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
}

function checkHosts(hosts: unknown): void {
  const isUrl = (host: unknown) => typeof host === 'string' && /^https?:\/\/[^/@]+$/.test(host)
  if (!Array.isArray(hosts) || hosts.length === 0 || !hosts.every(isUrl))
    throw new InvalidArgumentError(
      'hosts',
      'must be a list of URLs such as http://127.0.0.1:2379, without a path.',
    )
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

/** A member's answer must fit the question: an answer without the reads of a transaction is not an empty one. */
function isOther(method: unknown, message: unknown, answer: EtcdAnswer): boolean {
  return method === methods.txn && !isAnswerTo(message as TxnRequest, answer as TxnResponse)
}
