/**
 * A client for a cluster of etcd: one connection at a time, to one member. It moves to another member when this one refuses
 * (no leader, a learner), cannot be reached, or leaves requests unanswered.
 *
 * A request goes to another member only if it is certain that it was not applied, or if it only reads. Otherwise its outcome
 * is unknown, and the caller is told so.
 */
import type { Clock } from '../../../base/clock.ts'
import { BackendUnavailableError, type HoldfastError, InvalidArgumentError } from '../../../base/errors.ts'
import type { Call } from '../../../spi.ts'
import { Channel, type EtcdTls, type Metadata } from './channel.ts'
import { asUnavailable, ConnectionError, isForAnotherMember, isStaleToken } from './failures.ts'
import { type Method, methods, type TxnRequest } from './messages.ts'
import { isRead } from './transactions.ts'

export interface EtcdClientOptions {
  /** `http://host:port` or `https://host:port`, in the order in which they are tried. */
  readonly hosts: readonly string[]
  readonly tls?: EtcdTls
  readonly username?: string
  readonly password?: string
}

/** For a connection to one member. Others are tried after it. */
const CONNECT_LIMIT_MS = 1_000
/** A request that was given up after so long without any answer on its connection says something about the connection. */
const STUCK_AFTER_MS = 500

export class EtcdClient {
  readonly backend: string
  readonly #options: EtcdClientOptions
  readonly #clock: Clock
  #next = 0
  #channel: Promise<Channel> | undefined
  #token: Promise<string> | undefined
  #isClosed = false
  /** Requests and messages on streams that were sent, for tests and measurements. */
  sent = 0

  constructor(backend: string, options: EtcdClientOptions, clock: Clock) {
    checkHosts(options.hosts)
    this.backend = backend
    this.#options = options
    this.#clock = clock
  }

  async ask<Q, R>(method: Method<Q, R>, message: Q, call: Call): Promise<R> {
    let refusals = 0
    let hasNewToken = false
    for (;;) {
      try {
        const channel = await this.#connected(call)
        return await this.#askOn(channel, method, message, await this.#metadata(call), call)
      } catch (failure) {
        const error = changesNothing(method, message) ? asNotApplied(failure) : failure
        if (isStaleToken(error) && this.#token !== undefined && !hasNewToken) {
          hasNewToken = true
          this.#token = undefined
        } else if (isForAnotherMember(error) && ++refusals < this.#options.hosts.length) this.#move()
        else throw this.#failure(error)
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
  async askMember<Q, R>(host: string, method: Method<Q, R>, message: Q, call: Call): Promise<R> {
    const channel = await Channel.open(host, this.#options.tls, this.#clock, CONNECT_LIMIT_MS)
    try {
      return await this.#askOn(channel, method, message, await this.#metadata(call), call)
    } catch (error) {
      throw this.#failure(error)
    } finally {
      channel.destroy()
    }
  }

  get hosts(): readonly string[] {
    return this.#options.hosts
  }

  close(): void {
    this.#isClosed = true
    this.#channel?.then(
      (channel) => channel.destroy(),
      () => {},
    )
  }

  /** The connection does not serve: the next request takes another member. */
  leave(channel: Channel): void {
    this.#channel?.then(
      (current) => {
        if (current === channel) this.#move()
      },
      () => {},
    )
  }

  /** The next request asks for another one. */
  forgetToken(): void {
    this.#token = undefined
  }

  #failure(error: unknown): HoldfastError {
    return asUnavailable(this.backend, error)
  }

  #askOn<Q, R>(
    channel: Channel,
    method: Method<Q, R>,
    message: Q,
    metadata: Metadata,
    call: Call,
  ): Promise<R> {
    if (call.cancelled) throw this.#cancelled(call, 'not-applied')
    this.sent++
    const answersBefore = channel.answers
    const sentMs = this.#clock.monotonicMs()
    const asked = channel.ask(method, message, metadata)
    return new Promise<R>((resolve, reject) => {
      const untie = call.onCancel(() => {
        const isStuck = this.#clock.monotonicMs() - sentMs >= STUCK_AFTER_MS
        if (isStuck && channel.answers === answersBefore) this.leave(channel)
        reject(this.#cancelled(call, 'unknown'))
        asked.cancel()
      })
      asked.answer.then(resolve, reject).finally(untie)
    })
  }

  /** The current connection, or the first that can be made. Callers share the attempt. */
  async #connected(call: Call): Promise<Channel> {
    if (this.#isClosed) throw new ConnectionError('the client is closed', 'not-applied')
    this.#channel ??= this.#connect()
    const connecting = this.#channel
    const channel = await new Promise<Channel>((resolve, reject) => {
      const untie = call.onCancel(() => reject(this.#cancelled(call, 'not-applied')))
      connecting.then(resolve, reject).finally(untie)
    })
    if (channel.isOpen) return channel
    // A stopped member would accept the next connection, too.
    if (this.#channel === connecting) this.#move()
    return this.#connected(call)
  }

  #connect(): Promise<Channel> {
    const connecting = (async () => {
      const { hosts, tls } = this.#options
      for (let tries = 1; ; tries++) {
        const host = hosts[this.#next % hosts.length] ?? ''
        try {
          const channel = await Channel.open(host, tls, this.#clock, CONNECT_LIMIT_MS)
          if (this.#isClosed) channel.destroy()
          return channel
        } catch (error) {
          this.#next++
          if (tries >= hosts.length || this.#isClosed) throw error
        }
      }
    })()
    connecting.catch(() => {
      if (this.#channel === connecting) this.#channel = undefined
    })
    return connecting
  }

  #move(): void {
    this.#channel?.then(
      (channel) => channel.leave(),
      () => {},
    )
    this.#channel = undefined
    this.#next++
  }

  /** Every request asks for a leader: a member that is cut off refuses at once, and ends its streams. */
  async #metadata(call: Call): Promise<Metadata> {
    const { username, password = '' } = this.#options
    if (username === undefined) return { hasleader: 'true' }
    this.#token ??= this.#authenticate(username, password, call)
    return { hasleader: 'true', token: await this.#token }
  }

  #authenticate(name: string, password: string, call: Call): Promise<string> {
    const asking = (async () => {
      const channel = await this.#connected(call)
      const { token } = await this.#askOn(channel, methods.authenticate, { name, password }, {}, call)
      return token
    })()
    asking.catch(() => {
      if (this.#token === asking) this.#token = undefined
    })
    return asking
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

function changesNothing(method: unknown, message: unknown): boolean {
  return method === methods.txn ? isRead(message as TxnRequest) : reads.has(method)
}
