/** Faults of sessions, of time, and of what is believed. */
import { callWith } from '../../../packages/holdfast/src/base/aborting.ts'
import { type Instant, instantOf } from '../../../packages/holdfast/src/base/clock.ts'
import type { AcquireRequest, Call, SessionHandle } from '../../../packages/holdfast/src/spi.ts'
import type { Wrap } from '../../../packages/holdfast/src/testing/conformance/clients.ts'
import { request } from '../../../packages/holdfast/src/testing/conformance/toolbox.ts'
import { replace } from '../../../packages/holdfast/src/testing/conformance/wrapping.ts'
import {
  type AnySession,
  queueOf,
  regrant,
  rekeep,
} from '../../../packages/holdfast/test/conformance/changing.ts'
import { attachesBlindly, expiresLate } from '../../../packages/holdfast/test/conformance/consensus-like.ts'
import type { BackendBug } from '../bug.ts'
import { broken, brokenBackend, brokenEngineClock, brokenSession } from './broken.ts'
import { forceAll } from './careless.ts'

export const timeBugs: readonly BackendBug[] = [
  brokenBackend('every opening makes a session of its own', 'C7 C8', (inner) => ({
    openSession: (asked, call) => inner.openSession({ ...asked, id: inner.random.id() }, call),
  })),
  broken('the engine keeps half of the TTL that it grants', 'C57 C58 C197', () => (backend) => {
    const doubled = replace(backend, {
      session: (inner) => ({
        ttlMs: inner.ttlMs * 2,
        ...rekeep(inner, () => ({ ttlMs: inner.ttlMs * 2 })),
        ...regrant(inner, (grant) => ({ ...grant, ttlMs: inner.ttlMs * 2 })),
      }),
    })
    return replace(doubled, {
      backend: (inner) => ({
        openSession: (asked, call) => inner.openSession({ ...asked, ttlMs: asked.ttlMs / 2 }, call),
      }),
    })
  }),
  brokenSession(
    'a keep-alive revives what is gone',
    { suite: 'C12 C13', engineModel: true },
    (inner, backend) => ({
      async keepAlive(claims, call) {
        const result = await inner.keepAlive(claims, call)
        if (result.kind === 'alive') return result
        const { id, ttlMs } = inner
        const revived = await backend.openSession({ id, ttlMs, holder: 'revived' }, call)
        for (const { name, attempt } of claims.held) {
          await forceAll(backend, name, call)
          await revived.tryAcquire(request(name, { attempt }), call)
        }
        return revived.keepAlive(claims, call)
      },
    }),
  ),
  brokenSession('a keep-alive says yes without asking the engine', 'C11 C193 C206', (inner, { clock }) => ({
    async keepAlive() {
      const since = instantOf(clock)
      return { kind: 'alive', since, ttlMs: inner.ttlMs, lost: [], granted: [], unlisted: [] }
    },
  })),
  broken('a keep-alive prolongs every session of its client', 'C14', () => (backend) => {
    const sessions = new Set<AnySession>()
    return replace(backend, {
      session: (inner) => {
        sessions.add(inner)
        return {
          async keepAlive(claims, call) {
            for (const session of sessions) await session.keepAlive({ held: [], waiting: [] }, call)
            return inner.keepAlive(claims, call)
          },
        }
      },
    })
  }),
  brokenSession(
    'a keep-alive counts from its answer',
    { suite: 'C10', lockerModel: { at: 'client', as: /G3 / } },
    (inner, { clock }) => rekeep(inner, () => ({ since: instantOf(clock) })),
  ),
  broken(
    'a session counts from the answer to its opening',
    'C9',
    () => (backend) => replace(backend, { session: () => ({ since: instantOf(backend.clock) }) }),
  ),
  brokenSession('a grant counts from its own answer', 'C59 C60 C208', (inner, { clock }) => ({
    tryAcquire: regrant(inner, (grant) => ({ ...grant, since: instantOf(clock) })).tryAcquire,
  })),
  brokenSession(
    'a grant that is handed over counts from its receipt',
    { suite: 'C85', engineModel: true },
    (inner, { clock }) => ({
      enqueue: regrant(inner, (grant) => ({ ...grant, since: instantOf(clock) })).enqueue,
    }),
  ),
  brokenSession(
    'a grant that is handed over counts from the start of the wait',
    'C86',
    (inner, { clock }) => ({
      async enqueue(asked, call) {
        const since = instantOf(clock)
        const result = await queueOf(inner)(asked, call)
        return result.kind === 'granted' ? { ...result, grant: { ...result.grant, since } } : result
      },
    }),
  ),
  brokenBackend('attaching prolongs the session', { suite: 'C21', engineModel: true }, (inner) => ({
    async attachSession(handle, call) {
      const session = await inner.attachSession(handle, call)
      await session?.keepAlive({ held: [], waiting: [] }, call)
      return session
    },
  })),
  brokenBackend('attaching to what is gone opens it again', 'C22 C23', (inner) => ({
    attachSession: async (handle, call) =>
      (await inner.attachSession(handle, call)) ??
      inner.openSession(
        { id: String(handle.id), ttlMs: Number(handle.ttlMs), holder: String(handle.holder) },
        call,
      ),
  })),
  brokenBackend('sessions of a client end with it', 'C25', (inner) => {
    const opened: AnySession[] = []
    return {
      async openSession(asked, call) {
        const session = await inner.openSession(asked, call)
        opened.push(session)
        return session
      },
      async [Symbol.asyncDispose]() {
        for (const session of opened) await session.close(callWith())
        await inner[Symbol.asyncDispose]()
      },
    }
  }),
  broken('an opening that is repeated prolongs nothing, and believes from now', 'C244', () => {
    const handles = new Map<string, SessionHandle>()
    return (backend) =>
      replace(backend, {
        session: (inner) => {
          if (!handles.has(inner.id)) return {}
          const since = instantOf(backend.clock)
          return { since, ...regrant(inner, (grant) => ({ ...grant, since })) }
        },
        backend: (inner) => ({
          async openSession(asked, call) {
            const known = handles.get(asked.id)
            const found = known && (await inner.attachSession(known, call))
            const session = found ?? (await inner.openSession(asked, call))
            handles.set(asked.id, session.handle)
            return session as AnySession
          },
        }),
      })
  }),
  broken('opening a session again brings back what it had', 'C212', () => {
    const taken = new Map<string, AcquireRequest[]>()
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          tryAcquire(asked, call) {
            taken.set(inner.id, [...(taken.get(inner.id) ?? []), asked])
            return inner.tryAcquire(asked, call)
          },
        }),
        backend: (inner) => ({
          async openSession(asked, call) {
            const session = await inner.openSession(asked, call)
            for (const before of taken.get(asked.id) ?? []) await session.tryAcquire(before, call)
            return session
          },
        }),
      })
  }),
  brokenSession('closing does nothing', 'C16 C17 C24 C172 C205', () => ({ close: async () => {} })),
  brokenSession('closing fails when the session is gone', 'C18 C66', (inner) => ({
    async close(call) {
      const { kind } = await inner.keepAlive({ held: [], waiting: [] }, call)
      if (kind === 'gone') throw new Error('no such session')
      await inner.close(call)
    },
  })),
  brokenEngineClock('the engine has no timer of its own', 'C63 C182', (clock) => ({
    monotonicMs: () => clock.monotonicMs(),
    wallMs: () => clock.wallMs(),
    setTimer: () => ({ cancel: () => {} }),
  })),
  brokenEngineClock("the engine's clock runs twice as fast", 'C57 C64 C156', (clock) => ({
    monotonicMs: () => clock.monotonicMs() * 2,
    wallMs: () => clock.wallMs(),
    setTimer: (delayMs, fire) => clock.setTimer(delayMs / 2, fire),
  })),
  brokenEngineClock("the engine's clock stands still", 'C15 C19 C61 C62 C65 C127', (clock) => ({
    monotonicMs: () => 1,
    wallMs: () => 1,
    setTimer: (delayMs, fire) => clock.setTimer(delayMs, fire),
  })),
  brokenSession(
    'a grant counts from when it is granted',
    { suite: 'C235 C240', lockerModel: { at: 'client', as: /G3 / } },
    (inner, backend) => regrant(inner, (grant) => ({ ...grant, since: instantOf(backend.clock) })),
  ),
  brokenLate('a late engine, and a grant counts from its own sending', 'C235 C241', (backend) =>
    replace(backend, {
      session: (inner) => ({
        async tryAcquire(asked, call) {
          const since = instantOf(backend.clock)
          const result = await inner.tryAcquire(asked, call)
          return result.kind === 'granted' ? { ...result, grant: { ...result.grant, since } } : result
        },
      }),
    }),
  ),
  brokenLate('a late engine, and a grant that is pushed counts from its receipt', 'C240', (backend) =>
    replace(backend, {
      session: (inner) => ({
        enqueue: regrant(inner, (grant) => ({ ...grant, since: instantOf(backend.clock) })).enqueue,
      }),
    }),
  ),
  brokenLate(
    'a late engine, and a grant through an attached session counts from its own sending',
    'C241',
    attachesBlindly((session, { clock }) => ({
      tryAcquire: (asked: AcquireRequest, call: Call) => {
        const since = instantOf(clock)
        return session
          .tryAcquire(asked, call)
          .then((result) =>
            result.kind === 'granted' ? { ...result, grant: { ...result.grant, since } } : result,
          )
      },
    })),
  ),
  brokenSession('a keep-alive counts from before it was sent', 'C235', (inner) =>
    rekeep(inner, () => ({ since: inner.since })),
  ),
  brokenBackend('an attach believes from now', 'C236', (inner) => ({
    async attachSession(handle, call) {
      const session = await inner.attachSession(handle, call)
      return session && replaceSince(session, instantOf(inner.clock))
    },
  })),
  brokenBackend('a session has nearly twice the TTL that was asked for', 'C237', (inner) => ({
    openSession: (asked, call) => inner.openSession({ ...asked, ttlMs: asked.ttlMs * 1.9 }, call),
  })),
  broken('a session is granted whatever TTL was asked for', 'C249', () => {
    const ttls = new Map<string, number>()
    return (backend) =>
      replace(backend, {
        session: (inner) => ({ ttlMs: ttls.get(inner.id) ?? inner.ttlMs }),
        backend: (inner) => ({
          openSession(asked, call) {
            ttls.set(asked.id, asked.ttlMs)
            return inner.openSession(asked, call)
          },
        }),
      })
  }),
  brokenSession('a try in a dead session finds the name busy', 'C238', (inner) => ({
    async tryAcquire(asked, call) {
      const result = await inner.tryAcquire(asked, call)
      return result.kind === 'session-gone' ? { kind: 'busy' } : result
    },
  })),
]

/** On top of an engine that expires at twice the TTL: what it shows proves nothing there. */
function brokenLate(what: string, rules: string, fault: Wrap<'fenced'>): BackendBug {
  return broken(what, rules, () => (backend) => fault(expiresLate(backend)))
}

function replaceSince<S extends object>(session: S, since: Instant): S {
  return new Proxy(session, {
    get: (target, key) => {
      const value: unknown = key === 'since' ? since : Reflect.get(target, key, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
