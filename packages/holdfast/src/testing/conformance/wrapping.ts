/** A backend with some of its members replaced: for cases that need a fault, and for tests that plant a break. */
import { answering } from '../../kit/answering.ts'
import type { AcquireRequest, Attempt, Backend, BackendSession, EnqueueResult, Fencing } from '../../spi.ts'

/** Replacements for members of `T`; `undefined` takes one away. */
export type Replaced<T> = { readonly [K in keyof T]?: T[K] | undefined }

/** `enqueue` may also answer with a promise of its result. */
export interface ReplacedSession<F extends Fencing> extends Replaced<Omit<BackendSession<F>, 'enqueue'>> {
  readonly enqueue?: ((request: AcquireRequest, attempt: Attempt<F>) => unknown) | undefined
}

export interface Replacements<F extends Fencing> {
  readonly backend?: (inner: Backend<F>) => Replaced<Backend<F>>
  readonly session?: (inner: BackendSession<F>) => ReplacedSession<F>
}

export function replace<F extends Fencing>(backend: Backend<F>, replacements: Replacements<F>): Backend<F> {
  const wrapSession = (session: BackendSession<F>) =>
    overlay(session, answeringAttempts(replacements.session?.(session) ?? {}))
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

function answeringAttempts<F extends Fencing>(over: ReplacedSession<F>): object {
  const { enqueue } = over
  if (enqueue === undefined) return over
  return overlay(over, {
    enqueue(request: AcquireRequest, attempt: Attempt<F>) {
      const answer = enqueue(request, attempt)
      if (answer instanceof Promise) answering(attempt, answer as Promise<EnqueueResult<F>>)
    },
  })
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
