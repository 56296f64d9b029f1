/**
 * Changes that a crash takes away: each is noted together with the moment in which it becomes durable, and can be
 * taken back until then.
 */
interface Entry {
  readonly durableAtMs: number
  readonly undo: () => void
}

export class Journal {
  /** When what is changed now will have been synced; never earlier than for what was changed before. */
  durableAtMs = 0
  #entries: Entry[] = []

  set<K, V>(map: Map<K, V>, key: K, value: V): void {
    const old = map.get(key)
    const had = map.has(key)
    map.set(key, value)
    this.note(() => (had ? map.set(key, old as V) : map.delete(key)))
  }

  delete<K, V>(map: Map<K, V>, key: K): void {
    if (!map.has(key)) return
    const old = map.get(key) as V
    map.delete(key)
    this.note(() => map.set(key, old))
  }

  assign<T extends object, K extends keyof T>(target: T, key: K, value: T[K]): void {
    const old = target[key]
    target[key] = value
    this.note(() => {
      target[key] = old
    })
  }

  note(undo: () => void): void {
    this.#entries.push({ durableAtMs: this.durableAtMs, undo })
  }

  /** Forgets how to take back what has become durable. */
  settle(nowMs: number): void {
    const last = this.#entries.at(-1)
    if (last === undefined) return
    if (last.durableAtMs <= nowMs) this.#entries = []
    else if (this.#entries.length > 200)
      this.#entries = this.#entries.filter((each) => each.durableAtMs > nowMs)
  }

  /** Takes back what was not durable yet; returns how much. */
  rollBack(nowMs: number): number {
    const lost = this.#entries.filter((each) => each.durableAtMs > nowMs)
    for (const entry of lost.toReversed()) entry.undo()
    this.#entries = []
    return lost.length
  }
}
