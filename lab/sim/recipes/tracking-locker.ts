/** A client's locker, with every lease that it hands out tracked by the checks of the simulation. */
import type { FencedLease, Lease, Locker } from '../../../packages/holdfast/src/base/types.ts'
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
    return tellingBefore(lease, ['release', Symbol.asyncDispose], releasing)
  }
  const acquire: Locker<'fenced'>['acquire'] = async (name, options) =>
    track(await locker.acquire(name, options))
  const tryAcquire: Locker<'fenced'>['tryAcquire'] = async (name, options) => {
    const lease = await locker.tryAcquire(name, options)
    return lease === null ? null : track(lease)
  }
  const own: Partial<Locker<'fenced'>> = { acquire, tryAcquire }
  return new Proxy(locker, {
    get: (target, key) => {
      if (key === 'acquireAll' || key === 'withLease') throw new Error(`${key} is not tracked here`)
      const value: unknown = Reflect.get(key in own ? own : target, key)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** The same object, which calls `tell` before any of these methods. */
function tellingBefore<T extends Lease<'fenced'>>(
  target: T,
  methods: readonly (string | symbol)[],
  tell: () => void,
): T {
  return new Proxy(target, {
    get: (lease, key) => {
      const value: unknown = Reflect.get(lease, key, lease)
      if (typeof value !== 'function') return value
      return (...args: unknown[]) => {
        if (methods.includes(key)) tell()
        return value.apply(lease, args)
      }
    },
  })
}
