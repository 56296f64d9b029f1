/** One HTTP/2 connection to one member of etcd. gRPC on it: a request and its answer, or a stream of both. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2'
import type { SecureContextOptions } from 'node:tls'
import { afterThisTurn, type Clock, type Timer } from '../../../base/clock.ts'
import { ConnectionError, connectionFailure, EtcdError, notGrpc } from './failures.ts'
import type { Method } from './messages.ts'
import { type Schema, Writer } from './protobuf.ts'

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

/** After so long without a word, while something is expected, the member is asked whether it is there. */
const SILENCE_MS = 1_000
const PONG_LIMIT_MS = 2_000
/** etcd closes connections that ask more often than every 5 s (`--grpc-keepalive-min-time`). */
const PING_EVERY_MS = 6_000

const writer = new Writer()

function framed<T>(schema: Schema<T>, message: T): Buffer {
  return writer.framed(() => schema.write(writer, message))
}

export class Channel {
  readonly host: string
  readonly #session: ClientHttp2Session
  readonly #clock: Clock
  /** Grows with every answer. A request that is unanswered while it stands still may never be answered. */
  answers = 0
  /** Requests in flight, and streams. */
  #expected = 0
  #heardMs = 0
  #pingedMs = Number.NEGATIVE_INFINITY
  #silence: Timer | undefined
  readonly #streams = new Set<(error: Error) => void>()

  private constructor(host: string, session: ClientHttp2Session, clock: Clock) {
    this.host = host
    this.#session = session
    this.#clock = clock
    // The callers of pending requests keep the process alive, not the connection.
    session.unref()
  }

  get isOpen(): boolean {
    return !this.#session.closed && !this.#session.destroyed
  }

  /**
   * It is open when the other side has shown that it speaks HTTP/2. So what listens there and is not etcd, or is stopped, is found
   * out before anything is sent. Rejects as `not-applied`.
   */
  static open(host: string, tls: EtcdTls | undefined, clock: Clock, limitMs: number): Promise<Channel> {
    return new Promise((resolve, reject) => {
      const session = connect(host, { ...tls })
      let isConnected = false
      const fail = (what: Error | 'closed' | 'silent') => {
        timer.cancel()
        session.destroy()
        reject(
          new ConnectionError(connectionFailure(host, isConnected, what), 'not-applied', { cause: what }),
        )
      }
      let timer: Timer = clock.setTimer(limitMs, () => fail('silent'))
      // After the connection is made, the streams on it tell their own failures.
      session.on('error', fail)
      session.once('close', () => fail('closed'))
      session.once('connect', () => {
        isConnected = true
        timer.cancel()
        timer = clock.setTimer(limitMs, () => fail('silent'))
      })
      session.once('remoteSettings', () => {
        timer.cancel()
        resolve(new Channel(host, session, clock))
      })
    })
  }

  /** The answer, or a rejection with an EtcdError or a ConnectionError. `cancel` gives the request up. */
  ask<Q, R>(method: Method<Q, R>, message: Q, metadata: Metadata): Asked<R> {
    let cancel = () => {}
    const answer = new Promise<R>((resolve, reject) => {
      let received: R | undefined
      const onMessage = (message: R) => {
        received = message
      }
      const stream = this.#open(method, metadata, onMessage, (error) => {
        if (!(error instanceof ConnectionError)) this.answers++
        if (error !== null) reject(error)
        else if (received !== undefined) resolve(received)
        else reject(new ConnectionError(`${this.host} sent an empty answer`, 'unknown'))
      })
      if (stream === null) return
      stream.end(framed(method.request, message))
      cancel = () => stream.close(constants.NGHTTP2_CANCEL)
    })
    return { answer, cancel: () => cancel() }
  }

  /** `onEnd` is told once why the stream has ended. */
  stream<Q, R>(
    method: Method<Q, R>,
    metadata: Metadata,
    onMessage: (message: R) => void,
    onEnd: (error: Error) => void,
  ): Stream<Q> {
    let isClosed = false
    let end = (error: Error) => onEnd(error)
    const stream = this.#open(
      method,
      metadata,
      (message) => {
        if (!isClosed) onMessage(message)
      },
      (error) => end(error ?? new ConnectionError(`${this.host} has ended the stream`, 'unknown')),
    )
    if (stream !== null)
      end = (error) => {
        this.#streams.delete(end)
        if (isClosed) return
        isClosed = true
        stream?.close(constants.NGHTTP2_CANCEL)
        onEnd(error)
      }
    if (stream !== null) this.#streams.add(end)
    return {
      send: (message) => {
        if (!isClosed && stream?.writable) stream.write(framed(method.request, message))
      },
      close: () => {
        isClosed = true
        this.#streams.delete(end)
        stream?.close(constants.NGHTTP2_CANCEL)
      },
    }
  }

  /** What is in flight may still be answered. Streams end: a connection that is left is not listened to any more. */
  leave(): void {
    this.#session.close()
    for (const end of this.#streams) end(new ConnectionError(`${this.host} was left`, 'unknown'))
  }

  destroy(): void {
    this.#session.destroy()
  }

  #open<R>(
    { path, response }: Method<unknown, R>,
    metadata: Metadata,
    onMessage: (message: R) => void,
    onEnd: (error: Error | null) => void,
  ): ClientHttp2Stream | null {
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
    this.#expected++
    this.#listen()
    const frames = new Frames()
    let status: IncomingHttpHeaders | undefined
    let failure: unknown
    const onHeaders = (headers: IncomingHttpHeaders) => {
      if (headers['grpc-status'] !== undefined) status = headers
    }
    stream.on('response', (headers) => {
      onHeaders(headers)
      if (status !== undefined || headers['content-type']?.startsWith('application/grpc')) return
      failure = notGrpc(this.host, headers[':status'])
      stream.close(constants.NGHTTP2_CANCEL)
    })
    stream.on('trailers', onHeaders)
    stream.on('data', (chunk: Buffer) => {
      this.#heardMs = this.#clock.monotonicMs()
      for (const [bytes, start, end] of frames.take(chunk)) onMessage(response.read(bytes, start, end))
    })
    stream.on('error', (error) => {
      failure ??= error
    })
    stream.on('close', () => {
      this.#expected--
      onEnd(endOf(this.host, status, stream.rstCode, failure))
    })
    return stream
  }

  /** A stopped or unreachable member does not close its connections. Without this, every request would wait for its limit. */
  #listen(): void {
    this.#silence ??= this.#clock.setTimer(SILENCE_MS, () => {
      this.#silence = undefined
      if (this.#expected === 0 || !this.isOpen) return
      const nowMs = this.#clock.monotonicMs()
      if (nowMs - this.#heardMs >= SILENCE_MS && nowMs - this.#pingedMs >= PING_EVERY_MS) this.#ping(nowMs)
      this.#listen()
    })
  }

  #ping(nowMs: number): void {
    this.#pingedMs = nowMs
    let isAnswered = false
    const limit = this.#clock.setTimer(PONG_LIMIT_MS, () =>
      // If this process itself was late, the answer may be there and not yet read.
      afterThisTurn(() => {
        if (!isAnswered) this.destroy()
      }),
    )
    this.#session.ping(() => {
      isAnswered = true
      limit.cancel()
    })
  }
}

export interface Asked<R> {
  readonly answer: Promise<R>
  readonly cancel: () => void
}

function endOf(
  host: string,
  status: IncomingHttpHeaders | undefined,
  rstCode: number | undefined,
  cause: unknown,
): Error | null {
  if (cause instanceof ConnectionError) return cause
  if (status === undefined) {
    const isRefused = rstCode === constants.NGHTTP2_REFUSED_STREAM
    return new ConnectionError(
      `the connection to ${host} was lost before the answer came`,
      isRefused ? 'not-applied' : 'unknown',
      { cause },
    )
  }
  const code = Number(status['grpc-status'])
  if (code === 0) return null
  return new EtcdError(code, decodeURIComponent(String(status['grpc-message'] ?? `gRPC status ${code}`)))
}

/** Cuts what arrives into messages: a byte, a length of four bytes, and the message. */
class Frames {
  #rest: Buffer | undefined;

  *take(chunk: Buffer): Generator<readonly [bytes: Buffer, start: number, end: number]> {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk])
    let at = 0
    while (bytes.length - at >= 5) {
      const end = at + 5 + bytes.readUInt32BE(at + 1)
      if (end > bytes.length) break
      yield [bytes, at + 5, end]
      at = end
    }
    this.#rest = at === bytes.length ? undefined : bytes.subarray(at)
  }
}
