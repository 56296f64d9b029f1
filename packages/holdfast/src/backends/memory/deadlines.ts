/**
 * What falls due when: a binary heap whose entries know their place, so that a deadline can be moved or taken
 * back without a search. A keep-alive moves one, a closed session takes one back.
 */
interface Entry<Owner> {
  readonly owner: Owner
  dueMs: number
  index: number
}

export class Deadlines<Owner> {
  readonly #heap: Entry<Owner>[] = []
  readonly #entries = new Map<Owner, Entry<Owner>>()

  get size(): number {
    return this.#heap.length
  }

  /** When the earliest falls due; `Infinity` if there is none. */
  get nextMs(): number {
    return this.#heap[0]?.dueMs ?? Number.POSITIVE_INFINITY
  }

  /** Every owner has at most one deadline: a second call moves it. */
  set(owner: Owner, dueMs: number): void {
    let entry = this.#entries.get(owner)
    if (entry === undefined) {
      entry = { owner, dueMs, index: this.#heap.length }
      this.#entries.set(owner, entry)
      this.#heap.push(entry)
    }
    entry.dueMs = dueMs
    this.#restore(entry)
  }

  delete(owner: Owner): void {
    const entry = this.#entries.get(owner)
    if (entry === undefined) return
    this.#entries.delete(owner)
    const last = this.#heap.pop()
    if (last === undefined || last === entry) return
    this.#place(last, entry.index)
    this.#restore(last)
  }

  /** Takes out the earliest owner whose time has come. */
  takeDue(nowMs: number): Owner | undefined {
    const first = this.#heap[0]
    if (first === undefined || first.dueMs > nowMs) return undefined
    this.delete(first.owner)
    return first.owner
  }

  #restore(entry: Entry<Owner>): void {
    for (;;) {
      const parent = this.#heap[(entry.index - 1) >> 1]
      if (entry.index === 0 || parent === undefined || parent.dueMs <= entry.dueMs) break
      this.#swap(entry, parent)
    }
    for (;;) {
      const left = this.#heap[2 * entry.index + 1]
      const right = this.#heap[2 * entry.index + 2]
      const smaller = right !== undefined && left !== undefined && right.dueMs < left.dueMs ? right : left
      if (smaller === undefined || smaller.dueMs >= entry.dueMs) break
      this.#swap(entry, smaller)
    }
  }

  #swap(a: Entry<Owner>, b: Entry<Owner>): void {
    const index = a.index
    this.#place(a, b.index)
    this.#place(b, index)
  }

  #place(entry: Entry<Owner>, index: number): void {
    entry.index = index
    this.#heap[index] = entry
  }
}
