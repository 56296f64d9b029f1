/** One request of a caller: not written yet, in flight, or settled. Its caller may give it up at any time. */
import type { BackendUnavailableError, HoldfastError } from '../../../base/errors.ts'
import type { Connection, Expected } from './connection.ts'
import type { Reader } from './jute.ts'
import {
  type AnyOp,
  ownXids,
  type Reply,
  type Request,
  readReply,
  requestFrame,
  type Terms,
} from './messages.ts'

type Outcome<O extends AnyOp = AnyOp> = Reply<O> | HoldfastError

/** What every answer tells of the session. */
export type OnAnswer = (zxid: bigint, error: number, outcome: Outcome) => void

export class Asked<O extends AnyOp = AnyOp> implements Expected {
  readonly #backend: string
  readonly #request: Request<O>
  readonly #onAnswer: OnAnswer
  readonly #onReply: ((reply: Reply<O>) => void) | undefined
  readonly #settled = Promise.withResolvers<Reply<O>>()
  isSettled = false
  xid = 0
  /** The connection that it was written to, when, and how many answers had come on it. */
  sent: { readonly connection: Connection; readonly atMs: number; readonly answers: number } | undefined

  /** `onReply` is called when the reply is read, before anything that comes after it is. It is given for watches. */
  constructor(backend: string, request: Request<O>, onAnswer: OnAnswer, onReply?: (reply: Reply<O>) => void) {
    this.#backend = backend
    this.#request = request
    this.#onAnswer = onAnswer
    this.#onReply = onReply
  }

  get answer(): Promise<Reply<O>> {
    return this.#settled.promise
  }

  frame(xid: number, acl: Terms['acl']): Buffer {
    this.xid = ownXids[this.#request.op] ?? xid
    return requestFrame(this.#request, this.xid, { acl, watches: this.#onReply !== undefined })
  }

  answered(zxid: bigint, error: number, body: Reader): void {
    const outcome = readReply(this.#backend, this.#request, zxid, error, body)
    this.settle(outcome)
    this.#onAnswer(zxid, error, outcome)
  }

  lost(error: BackendUnavailableError): void {
    this.settle(error)
  }

  /** The first outcome counts. */
  settle(outcome: Outcome<O>): void {
    if (this.isSettled) return
    this.isSettled = true
    if (!(outcome instanceof Error)) this.#onReply?.(outcome)
    if (outcome instanceof Error) this.#settled.reject(outcome)
    else this.#settled.resolve(outcome)
  }
}
