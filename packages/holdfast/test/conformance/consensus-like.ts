/**
 * The memory backend made to look like an engine of the consensus kind (Consul): each part below is allowed by the SPI, and
 * a backend with all of them passes the suite.
 */
import { raisedTtlMs } from '../../src/kit/backend-kit.ts'
import type {
  AcquireRequest,
  AttachedSession,
  Attempt,
  Backend,
  ClaimState,
  NameState,
} from '../../src/spi.ts'
import type { Wrap } from '../../src/testing/conformance/clients.ts'
import { replace } from '../../src/testing/conformance/wrapping.ts'
import { queueOf, reask, regrant, rekeep } from './changing.ts'

/** Expires at twice the TTL, says so in `expirySlackMs`, and never shows more than one TTL. */
export const expiresLate: Wrap<'fenced'> = (backend) =>
  replace(backend, {
    session: (inner) => ({
      ttlMs: inner.ttlMs / 2,
      ...rekeep(inner, ({ granted }) => ({
        ttlMs: inner.ttlMs / 2,
        granted: granted.map((grant) => ({ ...grant, ttlMs: inner.ttlMs / 2 })),
      })),
      ...regrant(inner, (grant) => ({ ...grant, ttlMs: inner.ttlMs / 2 })),
    }),
    backend: (inner) => ({
      info: { ...inner.info, expirySlackMs: (ttlMs) => ttlMs + inner.info.expirySlackMs(ttlMs) },
      openSession: (asked, call) =>
        inner.openSession({ ...asked, ttlMs: 2 * raisedTtlMs(inner.info, asked.ttlMs) }, call),
      async inspect(name, call) {
        const state = await inner.inspect(name, call)
        return state && withHalfTtl(state)
      },
      async list(prefix, page, call) {
        const { items, next } = await inner.list(prefix, page, call)
        return { items: items.map(withHalfTtl), next }
      },
      async sessions(page, call) {
        const { items, next } = (await inner.sessions?.(page, call)) ?? { items: [], next: null }
        return { items: items.map(halfOf), next }
      },
    }),
  })

function withHalfTtl(state: NameState): NameState {
  return { ...state, holders: state.holders.map(halfOf), waiters: state.waiters.map(halfOf) }
}

function halfOf<T extends Pick<ClaimState, 'ttlMs'> & { readonly expiresInMs?: number }>(shown: T): T {
  const ttlMs = shown.ttlMs / 2
  const { expiresInMs } = shown
  return { ...shown, ttlMs, ...(expiresInMs !== undefined && { expiresInMs: Math.min(ttlMs, expiresInMs) }) }
}

type OnAttach = (session: AttachedSession<'fenced'>, backend: Backend<'fenced'>) => object

/** An attached session does not know when it was last prolonged; `over` says what its grants do about that. */
export function attachesBlindly(over: OnAttach): Wrap<'fenced'> {
  return (backend) =>
    replace(backend, {
      backend: (inner) => ({
        async attachSession(handle, call) {
          const session = await inner.attachSession(handle, call)
          if (session === null) return null
          const changed = { since: null, ...over(session, inner) }
          return new Proxy(session, {
            get: (target, key) => {
              const value: unknown = Reflect.get(key in changed ? changed : target, key)
              return typeof value === 'function' ? value.bind(target) : value
            },
          })
        },
      }),
    })
}

/** As the SPI asks: the first grant makes a keep-alive of its own before it. */
export const prolongsFirst: OnAttach = (session) => {
  let isKnown = false
  const first = async <T>(call: Parameters<typeof session.keepAlive>[1], run: () => Promise<T>) => {
    if (!isKnown) await session.keepAlive({ held: [], waiting: [] }, call)
    isKnown = true
    return run()
  }
  const known = session as Parameters<typeof queueOf>[0]
  return {
    tryAcquire: ((request, call) =>
      first(call, () => session.tryAcquire(request, call))) satisfies typeof session.tryAcquire,
    enqueue: (request: AcquireRequest, attempt: Attempt<'fenced'>) =>
      first(attempt, () => queueOf(known)(request, attempt)),
  }
}

/** `lockDelay: 'session'`: a session has one lock-delay, which it got when it was opened. */
export function delaysBySession(): Wrap<'fenced'> {
  const delays = new Map<string, number>()
  return (backend) =>
    replace(backend, {
      session: (inner) => reask(inner, (asked) => ({ ...asked, lockDelayMs: delays.get(inner.id) ?? 0 })),
      backend: (inner) => ({
        info: { ...inner.info, lockDelay: 'session' },
        openSession(asked, call) {
          delays.set(asked.id, asked.lockDelayMs ?? 0)
          return inner.openSession(asked, call)
        },
      }),
    })
}

export function tellsExpiriesAs(kind: 'expired' | 'ended' | 'released'): Wrap<'fenced'> {
  return (backend) =>
    replace(backend, {
      backend: (inner) => ({
        async *watch(prefix, options, call) {
          for await (const event of inner.watch?.(prefix, options, call) ?? [])
            yield event.kind === 'expired' ? { ...event, kind } : event
        },
      }),
    })
}

/** One for each world. */
export function consensusLike(): Wrap<'fenced'> {
  const parts = [expiresLate, attachesBlindly(prolongsFirst), delaysBySession(), tellsExpiriesAs('ended')]
  return (backend) => parts.reduce((wrapped, part) => part(wrapped), backend)
}
