/**
 * Limits the statements that postgres.js has at a time to the number of its connections. A statement that is cancelled in
 * the queue of postgres.js is sent all the same when a connection is free. Here it can leave the queue.
 */
import { onAborted } from '../../../base/aborting.ts'

export class InFlightLimit {
  readonly #queue = new Set<() => void>()
  #inFlight = 0
  readonly max: number

  constructor(max: number) {
    this.max = max
  }

  get inFlight(): number {
    return this.#inFlight
  }

  /** Undefined: there is room, and nothing to wait for. Rejects with what `errorFor` returns when the signal aborts. */
  take(signal: AbortSignal | undefined, errorFor: () => Error): Promise<void> | undefined {
    if (this.#inFlight < this.max) {
      this.#inFlight++
      return undefined
    }
    return new Promise<void>((resolve, reject) => {
      const start = () => {
        stopListening()
        resolve()
      }
      this.#queue.add(start)
      const leave = () => {
        this.#queue.delete(start)
        reject(errorFor())
      }
      const stopListening = onAborted(signal, leave)
    })
  }

  /** The room of one statement goes to the first in the queue. */
  giveBack(): void {
    const [first] = this.#queue
    if (first === undefined) {
      this.#inFlight--
      return
    }
    this.#queue.delete(first)
    first()
  }
}
