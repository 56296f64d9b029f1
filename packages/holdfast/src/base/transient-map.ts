/**
 * A map whose entries come and go thousands of times a second, such as the claims that are being asked for.
 *
 * V8 keeps a forward reference from every outgrown table of a Map to the one that replaced it. Once one of them has become
 * old, it keeps all later ones alive, with everything that was in them, until the next full collection: in a busy process
 * that made the collector the largest cost of an acquire. So after enough deletions the entries move to a new Map, to
 * which nothing refers. That happens only when something is added: deleting while iterating is safe.
 */
export class TransientMap<K, V> implements ReadonlyMap<K, V> {
  #map = new Map<K, V>()
  #deleted = 0

  get size(): number {
    return this.#map.size
  }

  get(key: K): V | undefined {
    return this.#map.get(key)
  }

  has(key: K): boolean {
    return this.#map.has(key)
  }

  set(key: K, value: V): void {
    if (this.#deleted > FEWEST_DELETED && this.#deleted > this.#map.size) {
      this.#map = new Map(this.#map)
      this.#deleted = 0
    }
    this.#map.set(key, value)
  }

  delete(key: K): boolean {
    if (!this.#map.delete(key)) return false
    this.#deleted++
    return true
  }

  clear(): void {
    this.#map = new Map()
    this.#deleted = 0
  }

  keys(): MapIterator<K> {
    return this.#map.keys()
  }

  values(): MapIterator<V> {
    return this.#map.values()
  }

  entries(): MapIterator<[K, V]> {
    return this.#map.entries()
  }

  forEach(visit: (value: V, key: K, map: ReadonlyMap<K, V>) => void): void {
    for (const [key, value] of this.#map) visit(value, key, this)
  }

  [Symbol.iterator](): MapIterator<[K, V]> {
    return this.#map.entries()
  }
}

/** Moving a handful of entries after each handful of deletions would cost more than it saves. */
const FEWEST_DELETED = 64
