/**
 * A transaction of postgres.js that ends with its connection.
 *
 * postgres.js goes on sending the statements of a transaction whose connection has ended: over the connection that took
 * its place, outside of any transaction, or over none, which ends the process with an error that nobody can catch. So
 * what users get is a transaction that refuses statements from then on.
 */
import type { PostgresJsRunner } from './types.ts'

/** Members that send something, or help to. */
const SENDING = new Set<PropertyKey>(['unsafe', 'file', 'notify', 'savepoint', 'prepare'])

type AnyFunction = (...args: unknown[]) => unknown

/** `assertAlive` throws when the connection has ended. */
export function mortalTransaction(sql: PostgresJsRunner, assertAlive: () => void): PostgresJsRunner {
  return new Proxy(sql, {
    apply(target, _this, args: unknown[]) {
      // Only a template is a statement; everything else is a helper for one.
      if (Array.isArray((args[0] as { raw?: unknown } | undefined)?.raw)) assertAlive()
      return (target as unknown as AnyFunction)(...args)
    },
    get(target, name) {
      const member: unknown = Reflect.get(target, name)
      if (typeof member !== 'function' || !SENDING.has(name)) return member
      return (...args: unknown[]) => {
        assertAlive()
        const passed = name === 'savepoint' ? args.map((each) => insideSavepoint(each, assertAlive)) : args
        return Reflect.apply(member, target, passed)
      }
    },
  })
}

function insideSavepoint(argument: unknown, assertAlive: () => void): unknown {
  if (typeof argument !== 'function') return argument
  return (inner: PostgresJsRunner) => (argument as AnyFunction)(mortalTransaction(inner, assertAlive))
}
