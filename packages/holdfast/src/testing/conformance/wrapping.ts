/** A backend with some of its members replaced: for cases that need a fault, and for tests that plant a break. */
import type { Backend, BackendSession, Fencing } from '../../spi.ts'

/** Replacements for members of `T`; `undefined` takes one away. */
export type Replaced<T> = { readonly [K in keyof T]?: T[K] | undefined }

export interface Replacements<F extends Fencing> {
  readonly backend?: (inner: Backend<F>) => Replaced<Backend<F>>
  readonly session?: (inner: BackendSession<F>) => Replaced<BackendSession<F>>
}

export function replace<F extends Fencing>(backend: Backend<F>, replacements: Replacements<F>): Backend<F> {
  const wrapSession = (session: BackendSession<F>) => overlay(session, replacements.session?.(session) ?? {})
  const withSessions: Backend<F> = overlay(backend, {
    openSession: async (...args: Parameters<Backend<F>['openSession']>) =>
      wrapSession(await backend.openSession(...args)),
    attachSession: async (...args: Parameters<Backend<F>['attachSession']>) => {
      const session = await backend.attachSession(...args)
      // A break may not care whether the session was attached.
      return session === null ? null : wrapSession(session as BackendSession<F>)
    },
  })
  return overlay(withSessions, replacements.backend?.(withSessions) ?? {})
}

/** Methods are bound to the object that they came from: most backends have private fields. */
function overlay<T extends object>(inner: T, over: object): T {
  return new Proxy(inner, {
    get(target, key) {
      if (Reflect.has(over, key)) return Reflect.get(over, key)
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
