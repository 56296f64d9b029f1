/**
 * A line in front of a client that has a line of its own, which cannot be left: a statement that was cancelled there is
 * sent all the same when its turn comes, for nobody. So no more statements are given to the client than it has
 * connections, and who waits here can leave.
 */
export class Places {
  readonly #line = new Set<() => void>()
  #free: number

  constructor(places: number) {
    this.#free = places
  }

  /** Undefined: there is one, and nothing to wait for. Leaves the line when the signal aborts, with what `onAbort` returns. */
  take(signal: AbortSignal | undefined, onAbort: () => Error): Promise<void> | undefined {
    if (this.#free > 0) {
      this.#free--
      return undefined
    }
    return new Promise<void>((resolve, reject) => {
      const leave = () => {
        this.#line.delete(takeTurn)
        signal?.removeEventListener('abort', abort)
      }
      const abort = () => {
        leave()
        reject(onAbort())
      }
      const takeTurn = () => {
        leave()
        resolve()
      }
      this.#line.add(takeTurn)
      signal?.addEventListener('abort', abort, { once: true })
      if (signal?.aborted) abort()
    })
  }

  giveBack(): void {
    const [first] = this.#line
    if (first === undefined) this.#free++
    else first()
  }
}
