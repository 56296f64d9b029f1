/** Faults that the models find, and that no rule of the suite is about. */
import { callWith } from '../../../packages/holdfast/src/base/aborting.ts'
import type { Lease, Locker } from '../../../packages/holdfast/src/base/types.ts'
import type { EnqueueResult } from '../../../packages/holdfast/src/spi.ts'
import { queueOf, regrant, rekeep } from '../../../packages/holdfast/test/conformance/changing.ts'
import type { BackendBug } from '../bug.ts'
import { brokenBackend, brokenSession } from './broken.ts'
import { releaseByAttempt } from './careless.ts'

const byEngineModel = { engineModel: true } as const

export const modelBugs: readonly BackendBug[] = [
  brokenSession('T37 a token is issued twice', byEngineModel, (inner) =>
    regrant(inner, (grant) => ({ ...grant, token: (grant.token + 1n) / 2n })),
  ),
  brokenSession('T73 an abandoned attempt can land again', byEngineModel, (inner, backend) => ({
    async abandon(claim, call) {
      const found = await backend.inspect(claim.name, call)
      const isHeld = found?.holders.some(({ id }) => claim.attempt.startsWith(id)) ?? false
      if (isHeld) await releaseByAttempt(inner, backend, claim, call)
      else await inner.abandon(claim, call)
    },
  })),
  brokenBackend('a name that has waiters can be forgotten', byEngineModel, (inner) => ({
    async forget(name, data, call) {
      const outcome = await inner.forget(name, data, call)
      return outcome === 'in-use' ? 'forgotten' : outcome
    },
  })),
  brokenSession('the client makes its own tokens', { lockerModel: { at: 'client', as: /G2 / } }, (inner) =>
    regrant(inner, (grant) => ({ ...grant, token: grant.token * 2n })),
  ),
  brokenSession(
    'a grant is not announced to its waiter',
    { lockerModel: { at: 'client', as: /G10 / } },
    (inner) => ({
      enqueue: async (request, call): Promise<EnqueueResult<'fenced'>> => {
        let waited = false
        const onQueued = () => {
          waited = true
        }
        const answer = await queueOf(inner)(request, callWith(call.signal, { queued: onQueued }))
        return waited ? new Promise<never>(() => {}) : answer
      },
      ...rekeep(inner, () => ({ granted: [] })),
    }),
  ),
  {
    what: 'a lost lease comes back',
    inModel: { locker: reviving },
    foundBy: { lockerModel: { as: /G4 / } },
  },
  {
    what: 'the caller that cancels an acquire gets an error of another',
    inModel: { locker: rejectingWithItsOwn },
    foundBy: { lockerModel: { as: /G11 / } },
  },
  {
    what: "the engine's clock runs fast",
    inModel: { engineRate: 1.1 },
    foundBy: { lockerModel: { as: /G13 / } },
  },
]

function rejectingWithItsOwn(locker: Locker<'fenced'>): Locker<'fenced'> {
  const { acquire } = locker
  locker.acquire = async (name, options) => {
    try {
      return await acquire.call(locker, name, options)
    } catch (error) {
      throw options?.signal?.aborted ? new Error('This operation was aborted') : error
    }
  }
  return locker
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
