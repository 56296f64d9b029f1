/**
 * Callers of one process who ask for one key look one after the other. A look may hang behind another's transaction, and
 * has a connection meanwhile: those who wait for one key would use up the connections of all the others.
 */
export interface Look<T> {
  /** Never settles if it was left before its turn. */
  readonly answer: Promise<T>
  /** Before its turn: it is not begun any more. Later it goes on, and the next one waits for its end. */
  leave(): void
}

export class Looks {
  /** For each key that somebody is at, those who wait for their turn. */
  readonly #lines = new Map<string, Set<() => void>>()

  take<T>(key: string, look: () => Promise<T>): Look<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    const begin = () => {
      look()
        .then(resolve, reject)
        .finally(() => this.#next(key))
    }
    const line = this.#lines.get(key)
    if (line === undefined) {
      this.#lines.set(key, new Set())
      begin()
    } else line.add(begin)
    return { answer: promise, leave: () => line?.delete(begin) }
  }

  #next(key: string): void {
    const line = this.#lines.get(key)
    const [first] = line ?? []
    if (first === undefined) this.#lines.delete(key)
    else {
      line?.delete(first)
      first()
    }
  }
}
