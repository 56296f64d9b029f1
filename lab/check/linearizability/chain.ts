/**
 * The nodes 1 to `size`, in order, as a doubly linked ring around the node 0. A node that was taken out still knows
 * its neighbours, so it can be put back at once, provided that the last to go is the first to return.
 */
export const head = 0

export class Chain {
  readonly #next: Int32Array
  readonly #previous: Int32Array

  constructor(size: number) {
    const nodes = size + 1
    this.#next = Int32Array.from({ length: nodes }, (_each, node) => (node + 1) % nodes)
    this.#previous = Int32Array.from({ length: nodes }, (_each, node) => (node + size) % nodes)
  }

  next(node: number): number {
    return this.#next[node] ?? head
  }

  unlink(node: number): void {
    const previous = this.#previous[node] ?? head
    const next = this.next(node)
    this.#next[previous] = next
    this.#previous[next] = previous
  }

  relink(node: number): void {
    this.#next[this.#previous[node] ?? head] = node
    this.#previous[this.next(node)] = node
  }
}
