/** Types that must compile and types that must not: checked by the compiler alone, never run. */
import type { Fence } from '../base/fence.ts'
import type { AnyLocker, FencedLease, Lease, Locker } from '../base/types.ts'
import { watchLockOrder } from './lock-order.ts'
import { reentrant } from './reentrant.ts'
import { type SingleFlightStore, singleFlight } from './single-flight.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
declare function expectTrue<_T extends true>(): void
declare function needsFence(fence: Fence): void

declare const fenced: Locker<'fenced'>
declare const unfenced: Locker<'unfenced'>
declare const configured: AnyLocker

/** A wrapper is of the type of what it wraps. */
export async function wrappers() {
  for (const wrap of [reentrant, watchLockOrder]) {
    const stillFenced = wrap(fenced)
    expectTrue<Equal<typeof stillFenced, Locker<'fenced'>>>()
    expectTrue<Equal<Awaited<ReturnType<typeof stillFenced.acquire>>, FencedLease>>()
    await stillFenced.withLease('n', (lease) => needsFence(lease.fence))

    const stillUnfenced = wrap(unfenced)
    // @ts-expect-error an unfenced locker does not become fenced by being wrapped
    await stillUnfenced.withLease('n', (lease) => needsFence(lease.fence))

    const either = wrap(configured)
    expectTrue<Equal<typeof either, AnyLocker>>()
    expectTrue<Equal<Awaited<ReturnType<typeof either.acquire>>, Lease>>()
  }
  // @ts-expect-error a wrapper needs a locker
  reentrant({})
  // @ts-expect-error it has no such option
  watchLockOrder(fenced, { max: 3 })
}

declare const text: SingleFlightStore<string, 'fenced'>
declare const any: SingleFlightStore<string>

/** The store and the computation get a fence where there is one. */
export async function flights() {
  const value = await singleFlight(fenced, 'k', { store: text, keepMs: 1 }, ({ lease }) => lease.fence.issuer)
  expectTrue<Equal<typeof value, string>>()
  await singleFlight(unfenced, 'k', { store: any, keepMs: 1 }, () => 'text')
  const store: SingleFlightStore<number, 'fenced'> = {
    get: async () => null,
    set: async (_key, _result, { fence }) => needsFence(fence),
  }
  await singleFlight(fenced, 'k', { store, keepMs: 1 }, () => 1)
  // @ts-expect-error the store keeps numbers
  await singleFlight(fenced, 'k', { store, keepMs: 1 }, () => 'text')
  // @ts-expect-error a store that checks fences needs a locker that issues them
  await singleFlight(unfenced, 'k', { store, keepMs: 1 }, () => 1)
  // @ts-expect-error how long a result is fresh has no default
  await singleFlight(fenced, 'k', { store }, () => 1)
  // @ts-expect-error an unfenced lease has no fence
  await singleFlight(unfenced, 'k', { store: any, keepMs: 1 }, ({ lease }) => lease.fence.issuer)
}
