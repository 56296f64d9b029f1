/** Faults of the queue, of abandoning, of modes and of closed names. */
import { callWith } from '../../../packages/holdfast/src/base/aborting.ts'
import { CapacityMismatchError, isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import type { EnqueueResult, GrantedClaim } from '../../../packages/holdfast/src/spi.ts'
import type { Wrap } from '../../../packages/holdfast/src/testing/conformance/clients.ts'
import { replace } from '../../../packages/holdfast/src/testing/conformance/wrapping.ts'
import { queueOf, reask, rekeep } from '../../../packages/holdfast/test/conformance/changing.ts'
import { delaysBySession } from '../../../packages/holdfast/test/conformance/consensus-like.ts'
import { memoryWorld } from '../../../packages/holdfast/test/conformance/memory-world.ts'
import type { BackendBug } from '../bug.ts'
import { broken, brokenBackend, brokenSession, brokenWorld } from './broken.ts'
import { forceAll, releaseByAttempt } from './careless.ts'

export const waitingBugs: readonly BackendBug[] = [
  broken('a release wakes all waiters', 'C70', () => {
    const waiting = new Map<string, Set<(result: EnqueueResult<'fenced'>) => void>>()
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          enqueue(request, call) {
            const { name, attempt } = request
            const { since, ttlMs } = inner
            return new Promise((resolve, reject) => {
              const wake = () =>
                resolve({ kind: 'granted', grant: { name, attempt, grantId: '1', token: 1n, since, ttlMs } })
              waiting.set(name, (waiting.get(name) ?? new Set()).add(wake))
              queueOf(inner)(request, call).then(resolve, reject)
            })
          },
          async release(claim, options, call) {
            const outcome = await inner.release(claim, options, call)
            for (const wake of waiting.get(claim.name) ?? []) wake({ kind: 'session-gone' })
            return outcome
          },
        }),
      })
  }),
  brokenSession('no waiter is told that it waits', 'C68', (inner) => ({
    enqueue: (request, { signal }) => queueOf(inner)(request, callWith(signal)),
  })),
  brokenSession('every caller is told that it waits', 'C67', (inner) => ({
    enqueue(request, call) {
      call.queued?.()
      return queueOf(inner)(request, call)
    },
  })),
  brokenSession('a wait cannot be cancelled', 'C88 C173', (inner) => ({
    enqueue: (request, call) => queueOf(inner)(request, callWith(undefined, { queued: () => call.queued() })),
  })),
  brokenSession('a wait in a session that is gone goes on for ever', 'C79 C82 C83', (inner) => ({
    async enqueue(request, call): Promise<EnqueueResult<'fenced'>> {
      const result = await queueOf(inner)(request, call)
      return result.kind === 'granted' ? result : new Promise<never>(() => {})
    },
  })),
  brokenSession('waiters never die', 'C80 C81 C171 C213 C223', (inner, { clock }) => ({
    enqueue(request, call) {
      const beat = () => {
        inner.keepAlive({ held: [], waiting: [] }, callWith()).catch(() => {})
        clock.setTimer(inner.ttlMs / 3, beat)
      }
      beat()
      return queueOf(inner)(request, call)
    },
  })),
  brokenSession('a keep-alive brings no grants', 'C209', (inner) => rekeep(inner, () => ({ granted: [] }))),
  brokenSession('a keep-alive does not say what else there is', 'C210 C211', (inner) =>
    rekeep(inner, () => ({ unlisted: [] })),
  ),
  brokenSession('a keep-alive reports what was granted as lost', 'C87', (inner) =>
    rekeep(inner, ({ lost, granted }) => ({
      lost: [...lost, ...granted.map(({ attempt }) => ({ attempt, reason: 'deleted' as const }))],
    })),
  ),
  brokenSession(
    'abandoning does nothing',
    { suite: 'C89 C90 C91 C92 C95 C176 C181 C194 C195 C199', lockerModel: { at: 'engine', as: /G6 |G10 / } },
    () => ({
      abandon: async () => {},
    }),
  ),
  brokenSession('abandoning is a release', 'C93 C94 C96 C97', (inner, backend) => ({
    abandon: (claim, call) => releaseByAttempt(inner, backend, claim, call),
  })),
  brokenSession('abandoning what is in flight does nothing', 'C101', (inner) => {
    const inFlight = new Set<string>()
    return {
      async tryAcquire(request, call) {
        inFlight.add(request.attempt)
        try {
          return await inner.tryAcquire(request, call)
        } finally {
          inFlight.delete(request.attempt)
        }
      },
      async abandon(claim, call) {
        if (!inFlight.has(claim.attempt)) await inner.abandon(claim, call)
      },
    }
  }),
  brokenSession('abandoning is forgotten at the next keep-alive', 'C96', (inner, backend) => {
    const abandoned = new Set<string>()
    return {
      abandon(claim, call) {
        abandoned.add(claim.attempt)
        return releaseByAttempt(inner, backend, claim, call)
      },
      async tryAcquire(request, call) {
        return abandoned.has(request.attempt) ? { kind: 'busy' } : inner.tryAcquire(request, call)
      },
      keepAlive(claims, call) {
        abandoned.clear()
        return inner.keepAlive(claims, call)
      },
    }
  }),
  brokenSession('abandoning frees the name also if another holds it', 'C99 C100', (inner, backend) => ({
    async abandon(claim, call) {
      await inner.abandon(claim, call)
      await forceAll(backend, claim.name, call)
    },
  })),
  brokenSession('abandoning what is unknown fails', 'C98', (inner, backend) => ({
    async abandon(claim, call) {
      if ((await backend.inspect(claim.name, call)) === null) throw new Error('no such attempt')
      await inner.abandon(claim, call)
    },
  })),
  brokenSession('readers are writers', 'C102 C103 C106 C107 C108 C109 C202', (inner) =>
    reask(inner, (request) =>
      request.mode === 'shared' ? { ...request, weight: request.capacity } : request,
    ),
  ),
  brokenSession('writers are readers', { suite: 'C103', lockerModel: { at: 'engine', as: /G1 / } }, (inner) =>
    reask(inner, (request) => (request.mode === 'exclusive' ? { ...request, weight: 1 } : request)),
  ),
  brokenSession('every permit weighs 1', 'C111 C118 C119 C190', (inner) =>
    reask(inner, (request) => (request.mode === 'permits' ? { ...request, weight: 1 } : request)),
  ),
  brokenSession(
    'a caller that disagrees on the capacity is told that the name is busy',
    'C113 C120',
    (inner) => ({
      async tryAcquire(request, call) {
        try {
          return await inner.tryAcquire(request, call)
        } catch (error) {
          if (isHoldfastError(error, 'CAPACITY_MISMATCH')) return { kind: 'busy' }
          throw error
        }
      },
    }),
  ),
  brokenSession('a caller that disagrees on the capacity waits', 'C114', (inner) => ({
    async enqueue(request, call): Promise<EnqueueResult<'fenced'>> {
      try {
        return await queueOf(inner)(request, call)
      } catch (error) {
        return isHoldfastError(error, 'CAPACITY_MISMATCH')
          ? new Promise<never>(() => {})
          : Promise.reject(error)
      }
    },
  })),
  remembering('a name with data keeps its capacity', 'C246', 'setData'),
  remembering('a closed name keeps its capacity', 'C247', 'release'),
  brokenBackend('a resize always says yes', 'C121 C122', (inner) => ({
    resize: (name, capacity, call) =>
      inner.resize(name, capacity, call).then(
        () => 'resized',
        () => 'resized',
      ),
  })),
  brokenBackend('a resize does nothing', 'C120', () => ({ resize: async () => 'resized' })),
  brokenSession('a lock-delay begins when the expiry is noticed', 'C224', (inner) =>
    reask(inner, (request) => ({ ...request, lockDelayMs: 1.5 * request.lockDelayMs })),
  ),
  brokenSession('lock-delays are ignored', { suite: 'C123 C126', engineModel: true }, (inner) =>
    reask(inner, (request) => ({ ...request, lockDelayMs: 0 })),
  ),
  broken('the lock-delay of a session is ignored', 'C123 C124 C126 C224', () => {
    const bySession = delaysBySession()
    return (backend) =>
      replace(bySession(backend), {
        backend: (inner) => ({
          openSession: ({ lockDelayMs: _ignored, ...asked }, call) => inner.openSession(asked, call),
        }),
      })
  }),
  broken(
    'a lock-delay follows every release',
    'C125',
    () => (backend) =>
      replace(backend, {
        session: (inner) => {
          const delays = new Map<string, number>()
          return {
            ...reask(inner, (request) => {
              delays.set(request.attempt, request.lockDelayMs)
              return request
            }),
            release: (claim, { keepForMs }, call) =>
              inner.release(claim, { keepForMs: Math.max(keepForMs, delays.get(claim.attempt) ?? 0) }, call),
          }
        },
      }),
  ),
  brokenSession('names are never kept closed', { suite: 'C128 C129 C131', engineModel: true }, (inner) => ({
    release: (claim, _options, call) => inner.release(claim, { keepForMs: 0 }, call),
  })),
  closing('the last release says how long a name stays closed', (_beforeMs, untilMs) => untilMs),
  closing('a name that is closed already is not closed for longer', (beforeMs, untilMs, nowMs) =>
    beforeMs > nowMs ? beforeMs : untilMs,
  ),
  brokenSession('it says that a name is closed for longer than it is', 'C124', (inner) => ({
    async tryAcquire(request, call) {
      const result = await inner.tryAcquire(request, call)
      return result.kind === 'busy' ? { kind: 'busy', retryAfterMs: 3_600_000 } : result
    },
  })),
  brokenSession('maxWaiters is ignored', 'C230 C232', (inner) =>
    reask(inner, ({ maxWaiters: _ignored, ...request }) => request),
  ),
  brokenSession('maxWaiters counts the call itself', 'C230 C231', (inner) =>
    reask(inner, (request) =>
      request.maxWaiters === undefined ? request : { ...request, maxWaiters: request.maxWaiters - 1 },
    ),
  ),
  brokenWorld('every wait has a connection of its own', 'C239', async () => {
    let connections = 0
    const wrap: Wrap<'fenced'> = (backend) =>
      replace(backend, {
        session: (inner) => ({
          enqueue: (request, call) => {
            connections++
            return queueOf(inner)(request, call)
          },
        }),
      })
    return { ...(await memoryWorld({ wrap })), countConnections: async () => connections }
  }),
]

/** From this call on, a name has the capacity that it had. */
function remembering(what: string, rules: string, from: 'setData' | 'release'): BackendBug {
  return broken(what, rules, () => {
    const asked = new Map<string, number>()
    const kept = new Map<string, number>()
    const keep = ({ name }: GrantedClaim) => kept.set(name, asked.get(name) ?? 0)
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          async tryAcquire(request, call) {
            const capacity = kept.get(request.name) ?? request.capacity
            if (capacity !== request.capacity)
              throw new CapacityMismatchError(request.name, request.capacity, capacity)
            asked.set(request.name, capacity)
            return inner.tryAcquire(request, call)
          },
          setData(claim, data, call) {
            if (from === 'setData') keep(claim)
            return inner.setData?.(claim, data, call) ?? Promise.reject(new TypeError('no data'))
          },
          release(claim, terms, call) {
            if (from === 'release') keep(claim)
            return inner.release(claim, terms, call)
          },
        }),
      })
  })
}

/** The client keeps names closed, until a time that follows from the one before. */
function closing(
  what: string,
  next: (beforeMs: number, untilMs: number, nowMs: number) => number,
): BackendBug {
  return broken(what, 'C245', () => {
    const closedUntilMs = new Map<string, number>()
    return (backend) =>
      replace(backend, {
        session: (inner) => ({
          release(claim, { keepForMs }, call) {
            const nowMs = backend.clock.monotonicMs()
            const beforeMs = closedUntilMs.get(claim.name) ?? 0
            if (keepForMs > 0) closedUntilMs.set(claim.name, next(beforeMs, nowMs + keepForMs, nowMs))
            return inner.release(claim, { keepForMs: 0 }, call)
          },
          async tryAcquire(request, call) {
            const leftMs = (closedUntilMs.get(request.name) ?? 0) - backend.clock.monotonicMs()
            return leftMs > 0 ? { kind: 'busy' } : inner.tryAcquire(request, call)
          },
        }),
      })
  })
}
