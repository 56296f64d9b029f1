/**
 * A transaction of postgres.js that ends with its connection.
 *
 * postgres.js goes on sending the statements of a transaction whose connection has ended: over the connection that replaced
 * it, outside of any transaction, or over none, which ends the process with an error that cannot be caught. So
 * what users get is a transaction that refuses statements from then on. It sends a statement when it is awaited, so a
 * statement that was made before the end is refused too.
 */
import type { PostgresJsRunner } from './types.ts'

/** Members that send something, or help to. */
const SENDING = new Set<PropertyKey>(['unsafe', 'file', 'notify', 'savepoint', 'prepare'])

type AnyFunction = (...args: unknown[]) => unknown

/** `assertOpen` throws when the connection has ended. */
export function refusingAfterEnd(sql: PostgresJsRunner, assertOpen: () => void): PostgresJsRunner {
  return new Proxy(sql, {
    apply(target, _this, args: unknown[]) {
      const made = (target as unknown as AnyFunction)(...args)
      // Only a template is a statement; everything else is a helper for one.
      if (!Array.isArray((args[0] as { raw?: unknown } | undefined)?.raw)) return made
      assertOpen()
      return refusingQuery(made as object, assertOpen)
    },
    get(target, name) {
      const member: unknown = Reflect.get(target, name)
      if (typeof member !== 'function' || !SENDING.has(name)) return member
      return (...args: unknown[]) => {
        assertOpen()
        const passed = name === 'savepoint' ? args.map((each) => insideSavepoint(each, assertOpen)) : args
        const made: unknown = Reflect.apply(member, target, passed)
        return name === 'unsafe' || name === 'file' ? refusingQuery(made as object, assertOpen) : made
      }
    },
  })
}

function insideSavepoint(argument: unknown, assertOpen: () => void): unknown {
  if (typeof argument !== 'function') return argument
  return (inner: PostgresJsRunner) => (argument as AnyFunction)(refusingAfterEnd(inner, assertOpen))
}

/** Methods of a query that send it. The first ones return a promise, the others return at once. */
const AWAITING = new Set<PropertyKey>(['then', 'catch', 'finally', 'readable', 'writable'])
const STARTING = new Set<PropertyKey>(['execute', 'forEach'])

function refusingQuery(query: object, assertOpen: () => void): object {
  const refusing: object = new Proxy(query, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name)
      if (typeof member !== 'function') return member
      return (...args: unknown[]) => {
        if (STARTING.has(name)) assertOpen()
        const refused = AWAITING.has(name) ? refusal(assertOpen) : undefined
        if (refused !== undefined) {
          const instead: unknown = Reflect.get(refused, name)
          return typeof instead === 'function' ? Reflect.apply(instead, refused, args) : refused
        }
        const result: unknown = Reflect.apply(member, target, args)
        if (result === target) return refusing
        return name === 'cursor' ? refusingCursor(result as AsyncIterable<unknown>, assertOpen) : result
      }
    },
  })
  return refusing
}

function refusal(assertOpen: () => void): Promise<never> | undefined {
  try {
    assertOpen()
    return undefined
  } catch (error) {
    return Promise.reject(error)
  }
}

/** A cursor sends its query at its first step, which is refused after the end. */
function refusingCursor(cursor: AsyncIterable<unknown>, assertOpen: () => void): AsyncIterable<unknown> {
  return {
    [Symbol.asyncIterator]: () => {
      const steps = cursor[Symbol.asyncIterator]()
      return {
        ...steps,
        next: async () => {
          assertOpen()
          return steps.next()
        },
      }
    },
  }
}
