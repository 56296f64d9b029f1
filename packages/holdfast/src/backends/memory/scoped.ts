/** Namespaces are separate worlds inside one engine: a map of maps that keeps no empty ones. */
export class Scoped<Value> {
  readonly #scopes = new Map<string, Map<string, Value>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  get(namespace: string, key: string): Value | undefined {
    return this.#scopes.get(namespace)?.get(key)
  }

  set(namespace: string, key: string, value: Value): void {
    let scope = this.#scopes.get(namespace)
    if (scope === undefined) {
      scope = new Map()
      this.#scopes.set(namespace, scope)
    }
    if (!scope.has(key)) this.#size++
    scope.set(key, value)
  }

  delete(namespace: string, key: string): void {
    const scope = this.#scopes.get(namespace)
    if (!scope?.delete(key)) return
    this.#size--
    if (scope.size === 0) this.#scopes.delete(namespace)
  }

  values(namespace: string): Iterable<Value> {
    return this.#scopes.get(namespace)?.values() ?? []
  }
}
