/** Breaks of the guarantees, each of which the checks must notice and call by its number. */
import { callWith } from '../../../src/base/aborting.ts'
import { instantOf } from '../../../src/base/clock.ts'
import type { Lease, Locker } from '../../../src/base/types.ts'
import { type Backend, type BackendSession, type Grant, LOCK_CAPACITY } from '../../../src/spi.ts'
import { replace } from '../../../src/testing/conformance/wrapping.ts'
import { forceAll } from '../../careless.ts'
import type { Planted } from './machine.ts'

interface Break {
  readonly what: string
  /** What the report says. */
  readonly noticedAs: RegExp
  readonly planted: Planted
}

type Session = BackendSession<'fenced'>

const session =
  (over: (inner: Session, backend: Backend<'fenced'>) => Partial<Session>) => (backend: Backend<'fenced'>) =>
    replace(backend, { session: (inner) => over(inner, backend) })

export const lockerBreaks: readonly Break[] = [
  {
    what: 'the engine gives exclusive holders room for others',
    noticedAs: /G1 /,
    planted: {
      engine: session((inner) => ({
        tryAcquire: (request, call) =>
          inner.tryAcquire(request.capacity === LOCK_CAPACITY ? { ...request, weight: 1 } : request, call),
      })),
    },
  },
  {
    what: 'the client makes its own tokens',
    noticedAs: /G2 /,
    planted: {
      client: session((inner) => regrant(inner, (grant) => ({ ...grant, token: grant.token * 2n }))),
    },
  },
  {
    what: 'a keep-alive counts from its answer',
    noticedAs: /G3 /,
    planted: {
      client: session((inner, { clock }) => ({
        async keepAlive(claims, call) {
          const kept = await inner.keepAlive(claims, call)
          return kept.kind === 'alive' ? { ...kept, since: instantOf(clock) } : kept
        },
      })),
    },
  },
  {
    what: 'a grant that was waited for counts from its receipt',
    noticedAs: /G3 /,
    planted: {
      client: session((inner, { clock }) =>
        regrant(inner, (grant) => ({ ...grant, since: instantOf(clock) })),
      ),
    },
  },
  {
    what: 'a keep-alive never tells of a loss',
    noticedAs: /G3 |G10 /,
    planted: {
      client: session((inner) => ({
        async keepAlive(claims, call) {
          const kept = await inner.keepAlive(claims, call)
          return kept.kind === 'alive' ? { ...kept, lost: [] } : kept
        },
      })),
    },
  },
  {
    what: 'a lost lease comes back',
    noticedAs: /G4 /,
    planted: { locker: (locker) => reviving(locker) },
  },
  {
    what: 'an abandoned attempt stays where it is',
    noticedAs: /G6 |G10 /,
    planted: { engine: session(() => ({ abandon: async () => {} })) },
  },
  {
    what: 'a release does not ask whose it is',
    noticedAs: /G7 /,
    planted: {
      engine: session((inner, backend) => ({
        async release(claim, options, call) {
          const outcome = await inner.release(claim, options, call)
          if (outcome === 'not-held') await forceAll(backend, claim.name, call)
          return outcome
        },
      })),
    },
  },
  {
    what: 'the turn of a waiter is not announced',
    noticedAs: /G10 /,
    planted: {
      client: session((inner) => ({
        enqueue: async (request, call) => {
          let waited = false
          const onQueued = () => {
            waited = true
          }
          const answer = await lineOf(inner)(request, callWith(call.signal, { onQueued }))
          return waited ? new Promise(() => {}) : answer
        },
        async keepAlive(claims, call) {
          const kept = await inner.keepAlive(claims, call)
          return kept.kind === 'alive' ? { ...kept, granted: [] } : kept
        },
      })),
    },
  },
  {
    what: 'who calls off an acquire gets an error of somebody else',
    noticedAs: /G11 /,
    planted: {
      locker: (locker) => {
        const { acquire } = locker
        locker.acquire = async (name, options) => {
          try {
            return await acquire.call(locker, name, options)
          } catch (error) {
            throw options?.signal?.aborted ? new Error('This operation was aborted') : error
          }
        }
        return locker
      },
    },
  },
  {
    what: "the engine's clock runs fast",
    noticedAs: /G13 /,
    planted: { engineRate: 1.1 },
  },
]

function regrant(inner: Session, change: (grant: Grant<'fenced'>) => Grant<'fenced'>): Partial<Session> {
  return {
    async tryAcquire(request, call) {
      const result = await inner.tryAcquire(request, call)
      return result.kind === 'granted' ? { ...result, grant: change(result.grant) } : result
    },
    ...(inner.enqueue && {
      async enqueue(request, call) {
        const result = await lineOf(inner)(request, call)
        return result.kind === 'granted' ? { ...result, grant: change(result.grant) } : result
      },
    }),
  }
}

function lineOf(inner: Session): NonNullable<Session['enqueue']> {
  return (request, call) => {
    if (inner.enqueue === undefined) throw new TypeError('there is no line')
    return inner.enqueue(request, call)
  }
}

/** Its leases tell of their loss, and then believe again. */
function reviving(locker: Locker<'fenced'>): Locker<'fenced'> {
  const { acquire } = locker
  locker.acquire = async (name, options) => {
    const lease = await acquire.call(locker, name, options)
    let timesTold = 0
    const lie: Partial<Record<PropertyKey, unknown>> = {
      state: 'held',
      remainingMs: 1,
      signal: new AbortController().signal,
    }
    return new Proxy(lease, {
      get(target, key) {
        const lies = timesTold >= 2 && key in lie
        if (target.state === 'lost' && key === 'signal') timesTold++
        const value: unknown = lies ? lie[key] : Reflect.get(target, key, target)
        return typeof value === 'function' ? value.bind(target) : value
      },
    }) as Lease<'fenced'>
  }
  return locker
}
