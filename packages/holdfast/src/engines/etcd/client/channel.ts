/**
 * One HTTP/2 connection to one member of etcd. gRPC on it: a request and its answer, or a stream of both.
 *
 *   open ──leave, GOAWAY, an answer that is not valid──▶ left ──3 s──▶ destroyed
 *   open ──no pong──▶ destroyed
 *
 * Each request is settled once, by the first of: its end, its cancellation, its limit, the end of its connection. It never waits for
 * the other side to close the stream. Nothing that arrives is trusted before it was checked, and nothing throws in a listener.
 */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2'
import type { Socket } from 'node:net'
import type { SecureContextOptions } from 'node:tls'
import { type Clock, judgeLate, type Timer } from '../../../base/clock.ts'
import { ConnectionError, malformed } from '../../../kit/connect-failure.ts'
import { Frames, MalformedError } from '../../../kit/frames.ts'
import type { Asked, MemberConnection } from '../../../kit/members.ts'
import { connectionFailure, EtcdError, notGrpc } from './failures.ts'
import type { EtcdAnswer, Method } from './messages.ts'
import { grpcHead, type Schema, Writer } from './protobuf.ts'

/** Certificates, as `node:tls` takes them. */
export interface EtcdTls extends Pick<SecureContextOptions, 'ca' | 'cert' | 'key' | 'passphrase'> {
  /** The name in the server's certificate, where it differs from the host in the URL. */
  readonly servername?: string
}

export type Metadata = Readonly<Record<string, string>>

export interface Stream<Request> {
  send(message: Request): void
  /** Ends it. Neither `onMessage` nor `onEnd` is called after that. */
  close(): void
}

/** A member that owes an answer and has been silent for so long is asked whether it is there. */
const SILENCE_MS = 1_000
const PONG_LIMIT_MS = 2_000
/** etcd closes connections that ask more often than every 5 s (`--grpc-keepalive-min-time`). */
const PING_EVERY_MS = 6_000

/** Node cannot ask a connection that was left whether it is there. So what is in flight on it has only so long. */
const LEFT_LIMIT_MS = 3_000
/** For one answer, also if its caller sets no limit: etcd itself gives up a request after 7 s, or later with slow elections. */
export const ANSWER_LIMIT_MS = 20_000
/** An answer of which so many bytes have come is on its way, however long it is. Less is as good as nothing. */
const PIECE_BYTES = 4_096

const writer = new Writer()

function framed<T>(schema: Schema<T>, message: T): Buffer {
  return writer.framed(() => schema.write(writer, message))
}

/** A request or a stream that has begun. */
interface InFlight {
  readonly stream: ClientHttp2Stream
  readonly messages: 'one' | 'many'
  /** Of its answer, that have come. */
  pieces: number
  /** Settles it, and closes the stream. */
  fail(error: ConnectionError): void
}

export class Channel implements MemberConnection {
  readonly host: string
  readonly #session: ClientHttp2Session
  readonly #socket: Socket | undefined
  readonly #clock: Clock
  /** Grows with every answer, and every piece of one. What is unanswered while it stands still may never be answered. */
  answers = 0
  readonly #inFlight = new Set<InFlight>()
  #heardMs = 0
  #pingedMs = Number.NEGATIVE_INFINITY
  #silence: Timer | undefined
  #isLeft = false
  #leaving: Timer | undefined
  /** After the other side has said that it goes: the last stream that it may have served. */
  #lastStreamId = Number.POSITIVE_INFINITY

  private constructor(host: string, session: ClientHttp2Session, socket: Socket | undefined, clock: Clock) {
    this.host = host
    this.#session = session
    this.#socket = socket
    this.#clock = clock
    // The callers of pending requests keep the process alive, not the connection.
    session.unref()
    session.on('goaway', (_code, lastStreamId) => {
      this.#lastStreamId = lastStreamId
      this.#leaveSoon()
    })
    session.once('close', () => this.#leaving?.cancel())
  }

  get isOpen(): boolean {
    return !this.#isLeft && !this.#session.closed && !this.#session.destroyed
  }

  /** Requests and streams that are not settled. */
  get inFlight(): number {
    return this.#inFlight.size
  }

  /**
   * It is open when the other side has shown that it speaks HTTP/2. So what listens there and is not etcd, or is stopped, is found
   * out before anything is sent. Rejects as `not-applied`.
   */
  static open(host: string, tls: EtcdTls | undefined, clock: Clock, limitMs: number): Promise<Channel> {
    return new Promise((resolve, reject) => {
      const session = connect(host, { ...tls, settings: { enablePush: false } })
      let isConnected = false
      let socket: Socket | undefined
      const fail = (what: Error | 'closed' | 'silent') => {
        timer.cancel()
        session.destroy()
        socket?.destroy()
        reject(
          new ConnectionError(connectionFailure(host, isConnected, what), 'not-applied', { cause: what }),
        )
      }
      let timer: Timer = judgeLate(clock, limitMs, () => fail('silent'))
      // After the connection is made, the streams on it tell their own failures.
      session.on('error', fail)
      session.once('close', () => fail('closed'))
      session.once('connect', (_session, connected) => {
        isConnected = true
        socket = connected
        timer.cancel()
        timer = judgeLate(clock, limitMs, () => fail('silent'))
      })
      session.once('remoteSettings', () => {
        timer.cancel()
        resolve(new Channel(host, session, socket, clock))
      })
    })
  }

  /** The answer, or a rejection with an EtcdError or a ConnectionError. `cancel` gives the request up. */
  ask<Q, R extends EtcdAnswer>(method: Method<Q, R>, message: Q, metadata: Metadata): Asked<R> {
    let cancel = () => {}
    let pieces = () => 0
    const answer = new Promise<R>((resolve, reject) => {
      let received: R | undefined
      const onMessage = (message: R) => {
        if (received !== undefined) asked?.fail(this.#spoilt('there are two messages'))
        received = message
      }
      const onEnd = (ended: Error | null) => {
        const error = ended ?? (received === undefined ? this.#spoilt('it is empty') : null)
        if (!(error instanceof ConnectionError)) this.answers++
        if (error !== null) reject(error)
        else resolve(received as R)
      }
      const asked = this.#open(method, metadata, 'one', onMessage, onEnd)
      if (asked === null) return
      asked.stream.end(framed(method.request, message))
      cancel = () => asked.fail(new ConnectionError('the request was given up', 'unknown'))
      pieces = () => asked.pieces
    })
    return { answer, cancel: () => cancel(), pieces: () => pieces() }
  }

  /** `onEnd` is told once why the stream has ended. */
  stream<Q, R extends EtcdAnswer>(
    method: Method<Q, R>,
    metadata: Metadata,
    onMessage: (message: R) => void,
    onEnd: (error: Error) => void,
  ): Stream<Q> {
    let isClosed = false
    const opened = this.#open(
      method,
      metadata,
      'many',
      (message) => {
        if (!isClosed) onMessage(message)
      },
      (error) => {
        if (!isClosed) onEnd(error ?? new ConnectionError(`${this.host} has ended the stream`, 'unknown'))
      },
    )
    return {
      send: (message) => {
        if (!isClosed && opened?.stream.writable) opened.stream.write(framed(method.request, message))
      },
      close: () => {
        isClosed = true
        opened?.fail(new ConnectionError('the stream was closed', 'unknown'))
      },
    }
  }

  /**
   * Calls in flight may still be answered, for a while. Streams end: a connection that is left is not listened to any more.
   */
  leave(): void {
    this.#leaveSoon()
    for (const { messages, fail } of [...this.#inFlight])
      if (messages === 'many') fail(new ConnectionError(`${this.host} was left`, 'unknown'))
  }

  destroy(): void {
    this.#isLeft = true
    this.#session.destroy()
    // A session that was closed before would wait for the other side to close its end.
    this.#socket?.destroy()
    const lost = () => new ConnectionError(`the connection to ${this.host} was given up`, 'unknown')
    for (const { fail } of [...this.#inFlight]) fail(lost())
  }

  #leaveSoon(): void {
    if (this.#isLeft) return
    this.#isLeft = true
    this.#leaving = judgeLate(this.#clock, LEFT_LIMIT_MS, () => this.destroy())
    this.#session.close()
  }

  /** After one answer that is not valid, the next ones are not trusted either. */
  #spoilt(cause: unknown): ConnectionError {
    this.leave()
    return malformed(this.host, cause)
  }

  #open<R extends EtcdAnswer>(
    { path, response }: Pick<Method<unknown, R>, 'path' | 'response'>,
    metadata: Metadata,
    messages: 'one' | 'many',
    onMessage: (message: R) => void,
    onEnd: (error: Error | null) => void,
  ): InFlight | null {
    let stream: ClientHttp2Stream
    try {
      stream = this.#session.request({
        ':method': 'POST',
        ':path': path,
        'content-type': 'application/grpc',
        te: 'trailers',
        ...metadata,
      })
    } catch (cause) {
      onEnd(new ConnectionError(`the connection to ${this.host} is closed`, 'not-applied', { cause }))
      return null
    }
    const settle = (error: Error | null) => {
      limit?.cancel()
      if (this.#inFlight.delete(opened)) onEnd(error)
    }
    const opened: InFlight = {
      stream,
      messages,
      pieces: 0,
      fail: (error) => {
        settle(error)
        stream.close(constants.NGHTTP2_CANCEL)
      },
    }
    const limited = () =>
      judgeLate(this.#clock, ANSWER_LIMIT_MS, () => {
        const what = `no answer from ${this.host} within ${ANSWER_LIMIT_MS} ms`
        opened.fail(new ConnectionError(what, 'unknown'))
        this.leave()
      })
    let limit: Timer | undefined = messages === 'one' ? limited() : undefined
    this.#inFlight.add(opened)
    this.#listen()
    const frames = new Frames(grpcHead)
    let hasBegun = false
    let bytes = 0
    let status: IncomingHttpHeaders | undefined
    let cause: unknown
    const onHeaders = (headers: IncomingHttpHeaders) => {
      this.#heardMs = this.#clock.monotonicMs()
      hasBegun = true
      if (headers['grpc-status'] !== undefined) status = headers
    }
    stream.on('response', (headers) => {
      onHeaders(headers)
      if (status !== undefined || headers['content-type']?.startsWith('application/grpc')) return
      opened.fail(notGrpc(this.host, headers[':status']))
    })
    stream.on('trailers', onHeaders)
    stream.on('data', (chunk: Buffer) => {
      this.#heardMs = this.#clock.monotonicMs()
      bytes += chunk.length
      const pieces = Math.floor(bytes / PIECE_BYTES)
      if (messages === 'one') this.answers += pieces - opened.pieces
      opened.pieces = pieces
      for (const message of this.#messages(opened, frames, chunk, response)) {
        if (messages === 'many') {
          limit?.cancel()
          limit = undefined
        }
        onMessage(message)
      }
      // A stream may be silent, but not in the middle of a message.
      if (frames.isCut && this.#inFlight.has(opened)) limit ??= limited()
    })
    stream.on('error', (error) => {
      cause = error
    })
    // Our own side of a stream of watches is open. As long as it is, the stream is not closed, and nobody is told of its end.
    stream.on('end', () => stream.close())
    stream.on('close', () => {
      if (!this.#inFlight.has(opened)) return
      if (status !== undefined) return settle(this.#endOf(status, frames))
      const isApplied = hasBegun || !this.#isRefused(stream)
      const what = `the connection to ${this.host} was lost before the answer came`
      settle(new ConnectionError(what, isApplied ? 'unknown' : 'not-applied', { cause }))
    })
    return opened
  }

  /** Certainly never served. What the other side has said of the whole connection says nothing of streams that it has got. */
  #isRefused({ id, rstCode }: ClientHttp2Stream): boolean {
    if (id === undefined || id > this.#lastStreamId) return true
    return this.#lastStreamId === Number.POSITIVE_INFINITY && rstCode === constants.NGHTTP2_REFUSED_STREAM
  }

  /** Fails the request when the bytes are not a message, or the message is not of etcd. */
  *#messages<R extends EtcdAnswer>(
    opened: InFlight,
    frames: Frames,
    chunk: Buffer,
    schema: Schema<R>,
  ): Generator<R> {
    const cut = frames.take(chunk)
    while (this.#inFlight.has(opened)) {
      let message: R
      try {
        const next = cut.next()
        if (next.done) return
        message = schema.read(...next.value)
        if (!message.header?.cluster_id) throw new MalformedError('it does not name its cluster')
      } catch (error) {
        opened.fail(this.#spoilt(error))
        return
      }
      yield message
    }
  }

  #endOf(status: IncomingHttpHeaders, frames: Frames): Error | null {
    const text = String(status['grpc-status'])
    if (!/^\d{1,2}$/.test(text)) return this.#spoilt(`its status is ${text}`)
    const code = Number(text)
    if (code !== 0) return new EtcdError(code, decoded(status['grpc-message']) ?? `gRPC status ${code}`)
    return frames.isCut ? this.#spoilt('its last message is cut') : null
  }

  /** A stopped or unreachable member does not close its connections. Without this, every request would wait for its limit. */
  #listen(): void {
    this.#silence ??= this.#clock.setTimer(SILENCE_MS, () => {
      this.#silence = undefined
      // One that was left is destroyed anyway, after the time that a ping would take.
      if (this.#inFlight.size === 0 || !this.isOpen) return
      const nowMs = this.#clock.monotonicMs()
      if (nowMs - this.#heardMs >= SILENCE_MS && nowMs - this.#pingedMs >= PING_EVERY_MS) this.#ping(nowMs)
      this.#listen()
    })
  }

  #ping(nowMs: number): void {
    this.#pingedMs = nowMs
    const limit = judgeLate(this.#clock, PONG_LIMIT_MS, () => {
      // The pong may stand behind a large answer.
      if (this.#heardMs <= nowMs) this.destroy()
    })
    this.#session.ping((error) => {
      // A closed or busy connection says nothing about the other side.
      if (error === null) limit.cancel()
    })
  }
}

/** Any text may come. What is no valid encoding is shown as it is. */
function decoded(message: string | string[] | undefined): string | undefined {
  if (message === undefined) return undefined
  const text = String(message)
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
