/** Simulated time: what is due first happens first. */
export class Timers {
  now = 0
  #count = 0
  readonly #heap: { readonly time: number; readonly order: number; readonly run: () => void }[] = []

  after(delay: number, run: () => void): void {
    const heap = this.#heap
    heap.push({ time: this.now + delay, order: this.#count++, run })
    for (let child = heap.length - 1; child > 0; ) {
      const parent = (child - 1) >> 1
      if (!this.#isBefore(child, parent)) break
      this.#swap(child, parent)
      child = parent
    }
  }

  /** Runs what is due next; false if nothing is. */
  step(): boolean {
    const heap = this.#heap
    const first = heap[0]
    const last = heap.pop()
    if (first === undefined || last === undefined) return false
    if (first !== last) heap[0] = last
    for (let parent = 0; ; ) {
      const [left, right] = [2 * parent + 1, 2 * parent + 2]
      const child = right < heap.length && this.#isBefore(right, left) ? right : left
      if (child >= heap.length || !this.#isBefore(child, parent)) break
      this.#swap(child, parent)
      parent = child
    }
    this.now = first.time
    first.run()
    return true
  }

  #isBefore(one: number, other: number): boolean {
    const [first, second] = [this.#heap[one], this.#heap[other]]
    if (first === undefined || second === undefined) return false
    return first.time === second.time ? first.order < second.order : first.time < second.time
  }

  #swap(one: number, other: number): void {
    const [first, second] = [this.#heap[one], this.#heap[other]]
    if (first === undefined || second === undefined) return
    this.#heap[one] = second
    this.#heap[other] = first
  }
}
