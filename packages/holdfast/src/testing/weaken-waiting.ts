/**
 * A backend with a queue, made to look like an engine that has none, so that polling can be tried on any backend.
 *
 * ```ts
 * const locker = createLocker(weakenWaiting(memory({ engine })))
 * ```
 */
import type { AttachedSession, Backend, Fencing } from '../spi.ts'

export function weakenWaiting<F extends Fencing>(backend: Backend<F>): Backend<F> {
  const { info, watch, sessions, diagnose } = backend
  return {
    info: { ...info, waiting: 'poll', driftMs: (ttlMs) => info.driftMs(ttlMs) },
    clock: backend.clock,
    random: backend.random,
    openSession: async (request, call) => {
      const session = await backend.openSession(request, call)
      return { ...withoutQueue(session), since: session.since }
    },
    attachSession: async (handle, call) => {
      const session = await backend.attachSession(handle, call)
      return session === null ? null : withoutQueue(session)
    },
    inspect: (name, call) => backend.inspect(name, call),
    list: (prefix, page, call) => backend.list(prefix, page, call),
    ...(sessions && { sessions: sessions.bind(backend) }),
    ...(diagnose && { diagnose: diagnose.bind(backend) }),
    check: (holder, call) => backend.check(holder, call),
    forceRelease: (name, ids, reason, call) => backend.forceRelease(name, ids, reason, call),
    resize: (name, capacity, call) => backend.resize(name, capacity, call),
    forget: (name, data, call) => backend.forget(name, data, call),
    ...(watch && { watch: watch.bind(backend) }),
    [Symbol.asyncDispose]: () => backend[Symbol.asyncDispose](),
  }
}

function withoutQueue<F extends Fencing>(session: AttachedSession<F>): AttachedSession<F> {
  const { id, ttlMs, since, handle, setData } = session
  return {
    id,
    ttlMs,
    since,
    handle,
    keepAlive: (claims, call) => session.keepAlive(claims, call),
    tryAcquire: (request, call) => session.tryAcquire(request, call),
    abandon: (claim, call) => session.abandon(claim, call),
    ...(setData && { setData: setData.bind(session) }),
    release: (claim, options, call) => session.release(claim, options, call),
    close: (call) => session.close(call),
  }
}
