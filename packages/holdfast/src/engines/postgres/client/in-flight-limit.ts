/**
 * Limits the statements that postgres.js has at a time to the number of its connections. A statement that is cancelled in
 * the queue of postgres.js is sent all the same when a connection is free. Here it can leave the queue.
 */
import { onStop, type Stop } from './stop.ts'

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

  /** Undefined: there is room, and nothing to wait for. Rejects with what `errorFor` returns when the caller has gone. */
  take(stop: Stop | undefined, errorFor: () => Error): Promise<void> | undefined {
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
      const stopListening = onStop(stop, leave)
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
