/** A set of at most `max` values. The one that was added longest ago is forgotten first; one that is added again counts as new. */
import { TransientMap } from './transient-map.ts'

export class RecentSet<T> {
  readonly #max: number
  readonly #values = new TransientMap<T, true>()

  constructor(max: number) {
    this.#max = max
  }

  get size(): number {
    return this.#values.size
  }

  has(value: T): boolean {
    return this.#values.has(value)
  }

  add(value: T): void {
    this.#values.delete(value)
    this.#values.set(value, true)
    const [oldest] = this.#values.size > this.#max ? this.#values.keys() : []
    if (oldest !== undefined) this.#values.delete(oldest)
  }

  delete(value: T): void {
    this.#values.delete(value)
  }
}
