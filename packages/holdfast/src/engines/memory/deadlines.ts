/** Deadlines in their order. Every owner has at most one deadline; a keep-alive moves it, a closed session takes it back. */
export class Deadlines<Owner> {
  readonly #dueMs = new Map<Owner, number>()
  /** No deadline is earlier. It may be too early, because deadlines move: then the next look finds nothing due. */
  #nextMs = Number.POSITIVE_INFINITY

  get size(): number {
    return this.#dueMs.size
  }

  /** Before this time nothing falls due; `Infinity` if there is nothing. */
  get nextMs(): number {
    return this.#dueMs.size === 0 ? Number.POSITIVE_INFINITY : this.#nextMs
  }

  set(owner: Owner, dueMs: number): void {
    this.#dueMs.set(owner, dueMs)
    this.#nextMs = Math.min(this.#nextMs, dueMs)
  }

  delete(owner: Owner): void {
    this.#dueMs.delete(owner)
  }

  /** Takes out the owners whose time has come, in the order of their deadlines. */
  takeDue(nowMs: number): readonly Owner[] {
    const due: [Owner, number][] = []
    this.#nextMs = Number.POSITIVE_INFINITY
    for (const entry of this.#dueMs)
      if (entry[1] <= nowMs) due.push(entry)
      else this.#nextMs = Math.min(this.#nextMs, entry[1])
    for (const [owner] of due) this.#dueMs.delete(owner)
    return due.sort(([, a], [, b]) => a - b).map(([owner]) => owner)
  }
}
