/**
 * The same object with some members of its own: a locker or a lease that behaves differently in one respect. Everything else goes
 * to the original, with the original as `this`, because its fields are private.
 */
export function overriding<T extends object>(original: T, own: Partial<T>): T {
  return new Proxy(original, {
    get(target, key) {
      if (Object.hasOwn(own, key)) return Reflect.get(own, key)
      const value: unknown = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      // Not `bind`: the `await using` of Node 24 does not take a bound function for a dispose method.
      return (...args: unknown[]) => value.apply(target, args)
    },
  })
}
