/**
 * One member of Consul over HTTP/1.1: a few connections for requests, and others for polls, which a server keeps for seconds.
 *
 *   open ──leave──▶ left: polls end at once, requests may still be answered ──8 s──▶ destroyed
 *
 * Each request is settled once, by the first of: its answer, its cancellation, its limit, the end of its connection. Nothing that arrives
 * is trusted before it was checked, and nothing throws in a listener.
 */
import { type ClientRequest, Agent as HttpAgent, request as httpRequest } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Socket } from 'node:net'
import type { SecureContextOptions } from 'node:tls'
import { type Clock, judgeLate, type Timer } from '../../../base/clock.ts'
import { ConnectionError, malformed } from '../../../kit/connect-failure.ts'
import type { Asked, MemberConnection } from '../../../kit/members.ts'
import { connectionFailure } from './failures.ts'

/** Certificates, as `node:tls` takes them. */
export interface ConsulTls extends Pick<SecureContextOptions, 'ca' | 'cert' | 'key' | 'passphrase'> {
  /** The name in the server's certificate, where it differs from the host in the URL. */
  readonly servername?: string
}

export interface HttpRequest {
  readonly method: 'GET' | 'PUT' | 'DELETE'
  readonly path: string
  readonly body?: string
  /** The server answers when something changes, or after a while. */
  readonly isPoll?: boolean
}

export interface HttpAnswer {
  readonly status: number
  readonly text: string
  /** Null if the answer has none. */
  readonly index: bigint | null
}

/** Consul allows 200 connections of one address (`http_max_conns_per_client`), and is slower to count than we are to connect (T89, a long poll each). */
export const MAX_SOCKETS = { requests: 8, polls: 9 } as const
/** A server without a leader keeps requests for 7 s (`rpc_hold_timeout`). */
const LEFT_LIMIT_MS = 8_000
/** For one answer, also if its caller sets no limit. */
export const ANSWER_LIMIT_MS = 20_000
/** The longest answer that is read: a name with more than 100,000 waiters. */
const MAX_BYTES = 64 * 2 ** 20
/** An answer of which so many bytes have come is on its way, however long it is. Less is as good as nothing. */
const PIECE_BYTES = 4_096

export class Member implements MemberConnection {
  readonly host: string
  answers = 0
  readonly #agents: Readonly<Record<keyof typeof MAX_SOCKETS, HttpAgent>>
  readonly #headers: Readonly<Record<string, string>>
  readonly #clock: Clock
  /** By the function that ends it: whether it is a poll. */
  readonly #inFlight = new Map<(error: ConnectionError) => void, boolean>()
  #isLeft = false
  #leaving: Timer | undefined

  constructor(host: string, tls: ConsulTls | undefined, token: string | undefined, clock: Clock) {
    this.host = host
    this.#clock = clock
    this.#headers = token === undefined ? {} : { 'x-consul-token': token }
    const agent = (maxSockets: number) =>
      this.#isSecure
        ? new HttpsAgent({ ...tls, keepAlive: true, maxSockets })
        : new HttpAgent({ keepAlive: true, maxSockets })
    this.#agents = { requests: agent(MAX_SOCKETS.requests), polls: agent(MAX_SOCKETS.polls) }
  }

  get isOpen(): boolean {
    return !this.#isLeft
  }

  get inFlight(): number {
    return this.#inFlight.size
  }

  /** The answer, whatever its status is, or a rejection with a ConnectionError. `cancel` gives the request up. */
  ask({ method, path, body, isPoll = false }: HttpRequest, limitMs = ANSWER_LIMIT_MS): Asked<HttpAnswer> {
    const { promise, resolve, reject } = Promise.withResolvers<HttpAnswer>()
    const agent = this.#agents[isPoll ? 'polls' : 'requests']
    const open = this.#isSecure ? httpsRequest : httpRequest
    const request = open(`${this.host}${path}`, { method, agent, headers: this.#headers })
    const end = (error: ConnectionError) => {
      if (!this.#inFlight.delete(end)) return
      limit.cancel()
      reject(error)
      request.destroy()
    }
    const limit = judgeLate(this.#clock, limitMs, () => {
      end(new ConnectionError(`no answer from ${this.host} within ${limitMs} ms`, outcome()))
      this.leave()
    })
    this.#inFlight.set(end, isPoll)
    const outcome = whetherSent(request, this.#isSecure)
    request.on('error', (cause) => end(this.#failure(cause, outcome())))
    // Without a body Consul is told so: some servers wait for one.
    request.end(method === 'PUT' ? (body ?? '') : undefined)
    let pieces = 0
    request.on('response', (response) => {
      const chunks: Buffer[] = []
      let bytes = 0
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk)
        bytes += chunk.length
        if (!isPoll) this.answers += Math.floor(bytes / PIECE_BYTES) - pieces
        pieces = Math.floor(bytes / PIECE_BYTES)
        if (bytes > MAX_BYTES) end(this.#spoilt(`it has more than ${MAX_BYTES} bytes`))
      })
      response.on('error', (cause) => end(this.#failure(cause, 'unknown')))
      response.on('end', () => {
        const written = response.headers['x-consul-index'] ?? ''
        if (!/^\d{0,20}$/.test(String(written))) return end(this.#spoilt('its index is no number'))
        if (!this.#inFlight.delete(end)) return
        limit.cancel()
        this.answers++
        const text = Buffer.concat(chunks).toString()
        resolve({
          status: response.statusCode ?? 0,
          text,
          index: written === '' ? null : BigInt(`${written}`),
        })
      })
    })
    const cancel = () => end(new ConnectionError('the request was given up', outcome()))
    return { answer: promise, cancel, pieces: () => pieces }
  }

  leave(): void {
    if (this.#isLeft) return
    this.#isLeft = true
    for (const [end, isPoll] of [...this.#inFlight])
      if (isPoll) end(new ConnectionError(`${this.host} was left`, 'unknown'))
    this.#leaving = judgeLate(this.#clock, LEFT_LIMIT_MS, () => this.destroy())
  }

  destroy(): void {
    this.#isLeft = true
    this.#leaving?.cancel()
    for (const end of [...this.#inFlight.keys()])
      end(new ConnectionError(`the connection to ${this.host} was given up`, 'unknown'))
    for (const agent of Object.values(this.#agents)) agent.destroy()
  }

  get #isSecure(): boolean {
    return this.host.startsWith('https:')
  }

  /** After one answer that is not valid, the next ones are not trusted either. */
  #spoilt(cause: unknown): ConnectionError {
    this.leave()
    return malformed(this.host, cause)
  }

  #failure(cause: Error, outcome: ConnectionError['outcome']): ConnectionError {
    if (outcome === 'not-applied')
      return new ConnectionError(connectionFailure(this.host, false, cause), outcome, { cause })
    if (/^HPE_/.test((cause as { code?: string }).code ?? '')) return this.#spoilt(cause)
    const what = `the connection to ${this.host} was lost before the answer came: ${cause.message}`
    return new ConnectionError(what, outcome, { cause })
  }
}

/** Sockets whose connection is made. */
const connected = new WeakSet<Socket>()

/** A request was certainly not applied until it has a connection, with TLS if that was asked for. */
function whetherSent(request: ClientRequest, isSecure: boolean): () => ConnectionError['outcome'] {
  let isSent = false
  request.on('socket', (socket) => {
    // The callers of pending requests keep the process alive, not the connection.
    socket.unref()
    isSent = connected.has(socket)
    if (isSent) return
    socket.once(isSecure ? 'secureConnect' : 'connect', () => {
      connected.add(socket)
      isSent = true
    })
  })
  return () => (isSent ? 'unknown' : 'not-applied')
}
