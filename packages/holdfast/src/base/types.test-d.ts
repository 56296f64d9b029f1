/**
 * Types that must compile and types that must not: checked by the compiler alone, never run. A line under `@ts-expect-error`
 * that begins to compile is an error.
 */
import { memory } from '../engines/memory/index.ts'
import { createLocker } from '../locker/locker.ts'
import type { BackendInfo } from '../spi.ts'
import type { Fence } from './fence.ts'
import type {
  AcquireOptions,
  AnyLocker,
  FencedLease,
  ForceReleaseOptions,
  Lease,
  LeaseBase,
  LeaseSet,
  Locker,
  Permit,
  TryAcquireOptions,
  UnfencedLease,
} from './types.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
declare function expectTrue<_T extends true>(): void
declare function needsFence(fence: Fence): void
declare function needsToken(token: bigint): void
declare function needsText(text: string): void
declare function needsFencedLease(lease: FencedLease): void

declare const fenced: Locker<'fenced'>
declare const unfenced: Locker<'unfenced'>
declare const configured: AnyLocker

/** The backend decides, where it is known in the source. */
export function knownBackend() {
  expectTrue<Equal<ReturnType<typeof createLocker<'fenced'>>, Locker<'fenced'>>>()
  const locker = createLocker(memory())
  expectTrue<Equal<typeof locker, Locker<'fenced'>>>()
  expectTrue<Equal<Awaited<ReturnType<typeof locker.acquire>>, FencedLease>>()
  expectTrue<Equal<Awaited<ReturnType<typeof locker.tryAcquire>>, FencedLease | null>>()
  expectTrue<Equal<Locker<'unfenced'>['fencing'], 'unfenced'>>()
  expectTrue<Equal<Locker<'unfenced'>['info'], BackendInfo<'unfenced'>>>()
}

/** G12: without fencing there is no fence, by type. */
export async function unfencedLeases() {
  expectTrue<Equal<Lease<'unfenced'>['fence'], undefined>>()
  expectTrue<Equal<Exclude<UnfencedLease['fence'], undefined>, never>>()
  const lease = await unfenced.acquire('n')
  // @ts-expect-error An unfenced lease has no fence.
  needsFence(lease.fence)
  // @ts-expect-error An unfenced lease is not a fenced one.
  needsFencedLease(lease)
  // @ts-expect-error It cannot be made one by giving it a fence.
  const dressed: UnfencedLease = { ...lease, fence: {} as Fence }
  await unfenced.withLease('n', async (held) => {
    // @ts-expect-error Nor in a body.
    needsFence(held.fence)
  })
  const set: LeaseSet<'unfenced'> = await unfenced.acquireAll(['a', 'b'])
  // @ts-expect-error A set of unfenced leases has no fences.
  needsFence(set.fences[0])
  return dressed
}

export async function fencedLeases() {
  const lease = await fenced.acquire('n')
  needsFence(lease.fence)
  needsFencedLease(lease)
  expectTrue<Equal<typeof lease.fence.token, bigint>>()
  await fenced.withLease('n', async (held) => needsFence(held.fence))
  const set = await fenced.acquireAll(['a', 'b'])
  for (const fence of set.fences) needsFence(fence)
  const tried = await fenced.tryAcquire('n')
  // @ts-expect-error Another holder may have it.
  needsFence(tried.fence)
  if (tried !== null) needsFence(tried.fence)
}

/** G12: a locker from configuration must be narrowed before its leases meet a guard. */
export async function configuredLockers() {
  const lease = await configured.acquire('n')
  // @ts-expect-error It may be undefined: not narrowed yet.
  needsFence(lease.fence)
  // @ts-expect-error Not narrowed yet.
  needsFencedLease(lease)
  if (lease.fencing === 'fenced') {
    needsFence(lease.fence)
    needsFencedLease(lease)
  } else {
    expectTrue<Equal<typeof lease, UnfencedLease>>()
  }
  if (configured.fencing === 'fenced') {
    configured satisfies Locker<'fenced'>
    needsToken(await configured.withLease('n', (held) => held.fence.token))
    needsFence((await configured.acquire('n')).fence)
  } else {
    configured satisfies Locker<'unfenced'>
    // @ts-expect-error Narrowed to the other.
    needsFence((await configured.acquire('n')).fence)
  }
  // Also before it is narrowed, it can run a body.
  needsText(await configured.withLease('n', { waitMs: 1 }, (held) => held.id))
  const both: AnyLocker[] = [fenced, unfenced]
  // @ts-expect-error An unfenced locker is not a fenced one.
  const wrong: Locker<'fenced'> = unfenced
  // @ts-expect-error Nor the other way round: what is refused by type is refused both ways.
  const alsoWrong: Locker<'unfenced'> = fenced
  return [both, wrong, alsoWrong]
}

/** Permits are no proof, on whichever engine. */
export async function permits() {
  const permit = await fenced.acquirePermits('n', { capacity: 3 })
  expectTrue<Equal<typeof permit, Permit>>()
  expectTrue<Equal<Permit['fencing'], 'unfenced'>>()
  // @ts-expect-error A permit has no fence.
  needsFence(permit.fence)
  // @ts-expect-error A permit is not a fenced lease.
  needsFencedLease(permit)
  // @ts-expect-error A semaphore has a capacity.
  await fenced.acquirePermits('n', {})
  // @ts-expect-error A semaphore has a capacity.
  await fenced.acquirePermits('n')
  // @ts-expect-error Permits have no mode.
  await fenced.acquirePermits('n', { capacity: 3, mode: 'shared' })
}

/** T43: only core and `parseFence` make fences. */
export async function forgedFences() {
  const forged = { issuer: 'me', name: 'n', mode: 'exclusive' as const, token: 2n ** 62n, grant: 'g' }
  // @ts-expect-error A plain object is not a fence.
  needsFence(forged)
  // @ts-expect-error A bare number is not a fence.
  needsFence(42n)
  // @ts-expect-error Nor is a text.
  await fenced.check('hf1/me/n/exclusive/1/g')
  // @ts-expect-error Nor is a lease: its fence is.
  await fenced.check(await fenced.acquire('n'))
  const { fence } = await fenced.acquire('n')
  await fenced.check(fence)
  // @ts-expect-error T42 A token is a bigint.
  const token: number = fence.token
  // @ts-expect-error A fence does not change.
  fence.token = 1n
  return token
}

/** An operator says exactly whom. */
export async function forcing() {
  const ways: ForceReleaseOptions[] = [
    { holder: 'h', reason: 'stuck' },
    { token: 5n, reason: 'stuck' },
    { all: true, reason: 'stuck' },
  ]
  // @ts-expect-error No holder is named.
  await fenced.forceRelease('n', { reason: 'stuck' })
  // @ts-expect-error Two ways of naming at once.
  await fenced.forceRelease('n', { holder: 'h', token: 5n, reason: 'stuck' })
  // @ts-expect-error Two ways of naming at once.
  await fenced.forceRelease('n', { token: 5n, all: true, reason: 'stuck' })
  // @ts-expect-error `all` is true or not there.
  await fenced.forceRelease('n', { all: false, reason: 'stuck' })
  // @ts-expect-error A reason is recorded.
  await fenced.forceRelease('n', { all: true })
  // @ts-expect-error T42 A token is a bigint.
  await fenced.forceRelease('n', { token: 5, reason: 'stuck' })
  // @ts-expect-error Options are not optional here.
  await fenced.forceRelease('n')
  return ways
}

export async function options() {
  await fenced.acquire('n', { waitMs: 5, mode: 'shared', signal: new AbortController().signal })
  // @ts-expect-error T26 tryAcquire does not wait.
  await fenced.tryAcquire('n', { waitMs: 5 })
  // @ts-expect-error T26 tryAcquirePermits does not wait.
  await fenced.tryAcquirePermits('n', { capacity: 1, waitMs: 5 })
  // @ts-expect-error One type per option: numbers of milliseconds.
  await fenced.acquire('n', { ttlMs: '5s' })
  // @ts-expect-error One type per option.
  await fenced.acquire('n', { waitMs: null })
  // @ts-expect-error Misspelt.
  await fenced.acquire('n', { ttlms: 5 })
  // @ts-expect-error Permits have a call of their own.
  await fenced.acquire('n', { mode: 'permits' })
  // @ts-expect-error A name is a string.
  await fenced.acquire(42)
  // @ts-expect-error One name is not a list.
  await fenced.acquireAll('n')
  expectTrue<Equal<keyof AcquireOptions, keyof TryAcquireOptions | 'waitMs' | 'maxWaiters'>>()
}

/** T59: the body gets the lease itself, and its result comes back typed. */
export async function bodies() {
  const value: number = await fenced.withLease('n', async (lease) => {
    needsFence(lease.fence)
    expectTrue<Equal<typeof lease.signal, AbortSignal>>()
    return 5
  })
  // @ts-expect-error A body is needed.
  await fenced.withLease('n', { ttlMs: 5 })
  return value
}

/** A failed or empty acquire has nothing to release, and what is read is not written. */
export async function surfaces(lease: LeaseBase) {
  const tried = await fenced.tryAcquire('n')
  // @ts-expect-error `null` has no release.
  await tried.release()
  // @ts-expect-error The state is the clock's to judge.
  lease.state = 'held'
  expectTrue<Equal<Awaited<ReturnType<LeaseBase['release']>>, 'released' | 'not-held' | 'unknown'>>()
  await using _ = lease
  await using _locker = fenced
}
