/**
 * Listens between core and the engine, to learn from when each claim counts without asking the lease that is judged
 * by it.
 */
import { publicIdOf } from '../../packages/holdfast/src/base/ids.ts'
import { answering } from '../../packages/holdfast/src/kit/answering.ts'
import type {
  AcquireResult,
  Backend,
  BackendSession,
  EnqueueResult,
  Grant,
} from '../../packages/holdfast/src/spi.ts'
import { enqueued } from '../../packages/holdfast/src/testing/enqueued.ts'
import { observed } from './observer.ts'

export interface Prolongation {
  readonly leaseId: string
  /** On the observer's clock. */
  readonly sentAt: number
  readonly ttlMs: number
}

type Told = (prolongation: Prolongation) => void

export function tap(backend: Backend, onGrant: Told, onConfirmed: Told): Backend {
  return wrap(backend, {
    openSession: async (request, call) =>
      listen(await backend.openSession(request, call), onGrant, onConfirmed),
  })
}

function listen(session: BackendSession, onGrant: Told, onConfirmed: Told): BackendSession {
  const noteGrant = ({ attempt, since, ttlMs }: Grant) =>
    onGrant({ leaseId: publicIdOf(attempt), sentAt: observed(since.monotonicMs), ttlMs })
  const noteResult = <R extends AcquireResult | EnqueueResult>(result: R): R => {
    if (result.kind === 'granted') noteGrant(result.grant)
    return result
  }
  const { enqueue } = session
  return wrap(session, {
    tryAcquire: async (request, call) => noteResult(await session.tryAcquire(request, call)),
    ...(enqueue && {
      enqueue: (request, attempt) => answering(attempt, enqueued(session, request, attempt).then(noteResult)),
    }),
    keepAlive: async (claims, call) => {
      const result = await session.keepAlive(claims, call)
      if (result.kind === 'gone') return result
      for (const grant of result.granted) noteGrant(grant)
      const { since, ttlMs, lost } = result
      for (const { attempt } of claims.held)
        if (lost.every((claim) => claim.attempt !== attempt))
          onConfirmed({ leaseId: publicIdOf(attempt), sentAt: observed(since.monotonicMs), ttlMs })
      return result
    },
  })
}

/** The same object with some of its methods replaced. */
function wrap<T extends object>(target: T, methods: Partial<T>): T {
  return new Proxy(target, {
    get(_target, key) {
      const own = Reflect.get(Object.hasOwn(methods, key) ? methods : target, key, target)
      return typeof own === 'function' ? own.bind(target) : own
    },
  })
}
