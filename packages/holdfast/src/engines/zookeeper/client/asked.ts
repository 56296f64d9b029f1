/** One request of a caller: not written yet, in flight, or settled. Its caller may give it up at any time. */
import type { BackendUnavailableError, HoldfastError } from '../../../base/errors.ts'
import type { Connection, Expected } from './connection.ts'
import type { Reader, Writer } from './jute.ts'
import { type AnyOp, type Reply, type Request, readReply, type Terms, writeRequest } from './messages.ts'

export type Outcome<O extends AnyOp = AnyOp> = Reply<O> | HoldfastError

/** What every answer tells of the session. */
export type OnAnswer = (zxid: bigint, error: number, outcome: Outcome) => void

export class Asked<O extends AnyOp = AnyOp> implements Expected {
  readonly answer: Promise<Reply<O>>
  readonly #backend: string
  readonly #request: Request<O>
  readonly #onReply: ((reply: Reply<O>) => void) | undefined
  readonly #onAnswer: OnAnswer
  #resolve: (reply: Reply<O>) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  isSettled = false
  xid = 0
  /** The connection that it was written to, when, and how many answers had come on it. */
  sent: { readonly connection: Connection; readonly atMs: number; readonly answers: number } | undefined

  /** `onReply` is called when the reply is read, before anything that comes after it is. */
  constructor(backend: string, request: Request<O>, onAnswer: OnAnswer, onReply?: (reply: Reply<O>) => void) {
    this.#backend = backend
    this.#request = request
    this.#onAnswer = onAnswer
    this.#onReply = onReply
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  write(writer: Writer, nextXid: number, acl: Terms['acl']): void {
    // Only a watch is interested in the moment of its reply.
    const watches = this.#onReply !== undefined
    this.xid = writeRequest(writer, this.#request, nextXid, { acl, watches })
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
    if (outcome instanceof Error) this.#reject(outcome)
    else {
      this.#onReply?.(outcome)
      this.#resolve(outcome)
    }
  }
}
