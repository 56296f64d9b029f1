/**
 * One socket to one member. Requests are pipelined, and answers come in their order.
 *
 *   open ──closed, reset, destroyed; bytes that are no answer; no answer for too long──▶ ended
 *
 * Each request is settled once: by its answer, or by the end. What arrives is not trusted, and nothing throws in a listener.
 */
import { connect as connectTcp, type Socket } from 'node:net'
import { connect as connectTls, type SecureContextOptions } from 'node:tls'
import { callSafely } from '../../../base/call-safely.ts'
import { type Clock, judgeLate, type Timer } from '../../../base/clock.ts'
import { type BackendUnavailableError, messageOf } from '../../../base/errors.ts'
import { type FrameHead, Frames, MalformedError } from '../../../kit/frames.ts'
import { connectionFailure, unavailable } from './failures.ts'
import { Reader } from './jute.ts'
import { EVENT_XID, type NodeEvent, readEvent } from './messages.ts'

/** Certificates, as `node:tls` takes them. */
export interface ZooKeeperTls extends Pick<SecureContextOptions, 'ca' | 'cert' | 'key' | 'passphrase'> {
  /** The name in the server's certificate, where it differs from the host. */
  readonly servername?: string
}

/** A request that will be answered. */
export interface Expected {
  /** Null: a ConnectRequest, whose answer has no head. */
  readonly xid: number | null
  /** `error`: ZooKeeper's code, 0 for none. A MalformedError ends the connection. */
  answered(zxid: bigint, error: number, body: Reader): void
  /** The outcome is unknown. */
  lost(error: BackendUnavailableError): void
}

export interface SocketTerms {
  readonly backend: string
  readonly clock: Clock
  readonly tls: ZooKeeperTls | undefined
}

export interface Listener {
  onEvent(event: NodeEvent): void
  onEnd(error: BackendUnavailableError): void
}

/** For an answer, also if no caller sets a limit. */
const ANSWER_LIMIT_MS = 20_000

const head: FrameHead = { bytes: 4, lengthOf: (bytes, at) => bytes.readUInt32BE(at) }

/** `at`: host and port. */
export function dial(at: string, tls: ZooKeeperTls | undefined): Socket {
  const [, host = at, port] = /^\[?(.*?)\]?:(\d+)$/.exec(at) ?? []
  const address = { host, port: Number(port) }
  return tls === undefined ? connectTcp(address) : connectTls({ ...tls, ...address })
}

export class MemberSocket {
  readonly host: string
  readonly #terms: SocketTerms
  readonly #socket: Socket
  readonly #frames = new Frames(head)
  readonly #expected: Expected[] = []
  #listener: Listener | undefined
  #onIdle: (() => void)[] = []
  #limit: Timer | undefined
  #isOpen = true
  /** Grows with every answer. */
  answers = 0

  private constructor(host: string, socket: Socket, terms: SocketTerms) {
    this.host = host
    this.#terms = terms
    this.#socket = socket
    socket.on('data', (chunk: Buffer) => this.#received(chunk))
    socket.on('error', (error) => this.#lose(`the connection to ${host} broke: ${messageOf(error)}`, error))
    socket.on('close', () => this.#lose(`${host} has closed the connection`))
  }

  /** Nothing is sent yet. It settles within the limit, and rejects as `not-applied`. */
  static open(host: string, terms: SocketTerms, limitMs: number): Promise<MemberSocket> {
    const { backend, clock, tls } = terms
    return new Promise((resolve, reject) => {
      const socket = dial(host, tls)
      // The callers of pending requests keep the process alive, not the connection.
      socket.unref().setNoDelay()
      const fail = (what: Error | 'closed' | 'silent') => {
        timer.cancel()
        socket.destroy()
        const dialled = { host, isSecure: tls !== undefined, isConnected: false }
        reject(unavailable(backend, connectionFailure(dialled, what), 'not-applied', what))
      }
      const onClose = () => fail('closed')
      const timer = judgeLate(clock, limitMs, () => fail('silent'))
      socket.on('error', fail).on('close', onClose)
      socket.once(tls === undefined ? 'connect' : 'secureConnect', () => {
        timer.cancel()
        socket.off('error', fail).off('close', onClose)
        resolve(new MemberSocket(host, socket, terms))
      })
    })
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** Who is told of events, and of the end: once, and after all that was expected. */
  listen(listener: Listener): void {
    this.#listener = listener
  }

  /** Everything in one write. */
  write(bytes: Buffer, expected: readonly Expected[]): void {
    this.#expected.push(...expected)
    this.#watchOver()
    if (this.#isOpen) this.#socket.write(bytes)
    else this.#lose(`the connection to ${this.host} is closed`)
  }

  get isIdle(): boolean {
    return this.#expected.length === 0
  }

  /** Runs `idle` when nothing is in flight, or nothing more will be answered. */
  whenIdle(idle: () => void): void {
    this.#onIdle.push(idle)
    this.#checkIdle()
  }

  destroy(why: string): void {
    this.#lose(why)
  }

  #received(chunk: Buffer): void {
    try {
      for (const [bytes, start, end] of this.#frames.take(chunk)) {
        if (!this.#isOpen) return
        this.#read(new Reader(bytes, start, end))
      }
    } catch (error) {
      const what = error instanceof MalformedError ? messageOf(error) : String(error)
      this.#lose(`${this.host} sent an answer that is not valid: ${what}`, error)
    }
  }

  #read(reader: Reader): void {
    if (this.#expected[0]?.xid === null) {
      this.#answer(0, 0n, 0, reader)
      return
    }
    const [xid, zxid, error] = [reader.int(), reader.long(), reader.int()]
    if (xid === EVENT_XID) {
      const event = readEvent(reader)
      if (event !== null) callSafely(() => this.#listener?.onEvent(event))
      return
    }
    const index = this.#expected.findIndex((each) => each.xid === xid)
    // Only a member that does not know a request answers it out of turn.
    if (index < 0 || (index > 0 && error !== UNIMPLEMENTED)) throw new MalformedError(`it answers ${xid}`)
    this.#answer(index, zxid, error, reader)
  }

  #answer(index: number, zxid: bigint, error: number, body: Reader): void {
    // It stays among the expected until it is known to be an answer.
    this.#expected[index]?.answered(zxid, error, body)
    this.#expected.splice(index, 1)
    this.answers++
    this.#checkIdle()
  }

  #checkIdle(): void {
    if (this.#expected.length > 0) return
    this.#limit?.cancel()
    this.#limit = undefined
    for (const idle of this.#onIdle.splice(0)) idle()
  }

  /** A member that has taken a request and leaves it unanswered may answer nothing more. */
  #watchOver(): void {
    if (this.#limit !== undefined || this.#expected.length === 0) return
    const before = this.answers
    this.#limit = judgeLate(this.#terms.clock, ANSWER_LIMIT_MS, () => {
      this.#limit = undefined
      if (this.answers > before) this.#watchOver()
      else this.#lose(`no answer from ${this.host} within ${ANSWER_LIMIT_MS} ms`)
    })
  }

  #lose(why: string, cause?: unknown): void {
    const isFirst = this.#isOpen
    this.#isOpen = false
    this.#socket.destroy()
    const error = unavailable(this.#terms.backend, why, 'unknown', cause)
    for (const each of this.#expected.splice(0)) each.lost(error)
    this.#checkIdle()
    if (isFirst) this.#listener?.onEnd(error)
  }
}

const UNIMPLEMENTED = -6
