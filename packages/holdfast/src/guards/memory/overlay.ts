/** Changes to a map that are not made yet: seen by who makes them, applied or dropped as a whole. */
export class Overlay<Value> {
  readonly #base: Map<string, Value>
  readonly #changes = new Map<string, { readonly value: Value } | null>()

  constructor(base: Map<string, Value>) {
    this.#base = base
  }

  get(key: string): Value | undefined {
    const change = this.#changes.get(key)
    if (change === undefined) return this.#base.get(key)
    return change?.value
  }

  set(key: string, value: Value): void {
    this.#changes.set(key, { value })
  }

  delete(key: string): void {
    this.#changes.set(key, null)
  }

  entries(): [string, Value][] {
    const unchanged = [...this.#base].filter(([key]) => !this.#changes.has(key))
    const changed = [...this.#changes].flatMap(([key, change]): [string, Value][] =>
      change === null ? [] : [[key, change.value]],
    )
    return [...unchanged, ...changed]
  }

  apply(): void {
    for (const [key, change] of this.#changes) {
      if (change === null) this.#base.delete(key)
      else this.#base.set(key, change.value)
    }
  }
}
