/** One request of a caller: not written yet, in flight, or settled. Its caller may give it up at any time. */
import type { BackendUnavailableError, HoldfastError } from '../../../base/errors.ts'
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
import type { Expected, MemberSocket } from './socket.ts'

type Outcome<O extends AnyOp = AnyOp> = Reply<O> | HoldfastError

export interface AskedTerms extends Pick<Terms, 'acl'> {
  readonly backend: string
  /** Told of every answer, for the session. */
  readonly onAnswer: (zxid: bigint, error: number, outcome: Outcome) => void
}

export class Asked<O extends AnyOp = AnyOp> implements Expected {
  readonly #request: Request<O>
  readonly #terms: AskedTerms
  readonly #onReply: ((reply: Reply<O>) => void) | undefined
  readonly #settled = Promise.withResolvers<Reply<O>>()
  readonly #frame: Buffer
  isSettled = false
  xid = 0
  /** The connection that it was written to, when, and how many answers had come on it. */
  sent: { readonly connection: MemberSocket; readonly atMs: number; readonly answers: number } | undefined

  /** `onReply`: for watches. It is called when the reply is read, before anything that comes after it is. */
  constructor(request: Request<O>, terms: AskedTerms, onReply?: (reply: Reply<O>) => void) {
    this.#request = request
    this.#terms = terms
    this.#onReply = onReply
    this.#frame = requestFrame(request, { acl: terms.acl, watches: onReply !== undefined })
  }

  get answer(): Promise<Reply<O>> {
    return this.#settled.promise
  }

  frame(xid: number): Buffer {
    this.xid = ownXids[this.#request.op] ?? xid
    this.#frame.writeInt32BE(this.xid, 4)
    return this.#frame
  }

  answered(zxid: bigint, error: number, body: Reader): void {
    const outcome = readReply(this.#terms.backend, this.#request, zxid, error, body)
    this.settle(outcome)
    this.#terms.onAnswer(zxid, error, outcome)
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
