/** A client's locker, with every lease that it hands out tracked by the checks of the simulation. */
import { overriding } from '../../../packages/holdfast/src/base/overriding.ts'
import type { AcquireOptions, FencedLease, Locker } from '../../../packages/holdfast/src/base/types.ts'
import type { Client } from '../client.ts'
import type { TrackedLease } from '../tracked.ts'

export interface LeaseObserver {
  readonly tracked?: (tracked: TrackedLease) => void
  /** The recipe is about to give it back. */
  readonly releasing?: (tracked: TrackedLease) => void
}

export function trackingLocker(client: Client, observer: LeaseObserver = {}): Locker<'fenced'> {
  const { locker } = client
  const track = (lease: FencedLease): FencedLease => {
    const tracked = client.track(lease, {})
    observer.tracked?.(tracked)
    const releasing = () => {
      observer.releasing?.(tracked)
      client.world.checks.releasing(tracked)
    }
    return overriding(lease, {
      release: (options) => {
        releasing()
        return lease.release(options)
      },
      [Symbol.asyncDispose]: () => {
        releasing()
        return lease[Symbol.asyncDispose]()
      },
    })
  }
  const own: Partial<Locker<'fenced'>> = {
    acquire: async (name, options) => track(await locker.acquire(name, options)),
    tryAcquire: async (name, options) => {
      const lease = await locker.tryAcquire(name, options)
      return lease === null ? null : track(lease)
    },
    acquireAll: () => {
      throw new Error('acquireAll is not tracked here')
    },
  }
  const withLease = <T>(
    name: string,
    options: AcquireOptions,
    body: (lease: FencedLease) => Promise<T> | T,
  ): Promise<T> =>
    locker.withLease(name, options, async (lease) => {
      const tracked = client.track(lease, {})
      try {
        return await body(lease)
      } finally {
        // `withLease` releases in the same breath.
        client.world.checks.releasing(tracked)
      }
    })
  return overriding(locker, { ...own, withLease: withLease as Locker<'fenced'>['withLease'] })
}
