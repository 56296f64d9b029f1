/**
 * Types that must compile, and types that must not: checked by the compiler alone, never run. The `LockManager` of lib.dom is not in
 * this program; `scripts/checks/pack.test.ts` compiles one with it.
 */
import type { Lock, LockManager, LockOptions } from 'node:worker_threads'
import type { Fence } from './base/fence.ts'
import type { AnyLocker, FencedLease, Lease, Locker } from './base/types.ts'
import { type WebLock, webLocks } from './web-locks.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
declare function expectTrue<_T extends true>(): void
declare function needsFence(fence: Fence): void

declare const fenced: Locker<'fenced'>
declare const unfenced: Locker<'unfenced'>
declare const configured: AnyLocker
declare const nodes: LockOptions

/** A program that was written for Node's own locks. */
async function program(locks: LockManager): Promise<string> {
  await locks.request('n', nodes, (lock: Lock | null) => lock?.name)
  const { held, pending } = await locks.query()
  return locks.request('n', { mode: 'shared' }, async () =>
    [...held, ...pending].map((each) => each.clientId).join(),
  )
}

export async function accepted(): Promise<void> {
  for (const locker of [fenced, unfenced, configured]) {
    const locks: LockManager = webLocks(locker, { ttlMs: 1_000, allowSteal: true })
    await program(locks)
  }
  await program(webLocks(fenced))
  await program(webLocks(configured))

  const locks = webLocks(fenced)
  const text = await locks.request('n', async (lock) => lock.name)
  expectTrue<Equal<typeof text, string>>()
  await locks.request('n', ({ lease }) => needsFence(lease.fence))
  await locks.request('n', { mode: 'shared' }, ({ lease }) => expectTrue<Equal<typeof lease, FencedLease>>())
  await locks.request('n', { ifAvailable: true }, (lock) => {
    expectTrue<Equal<typeof lock, WebLock<'fenced'> | null>>()
  })
  await webLocks(configured).request('n', ({ lease }) => expectTrue<Equal<typeof lease, Lease>>())
}

export async function refused(): Promise<void> {
  const locks = webLocks(fenced)
  // @ts-expect-error with ifAvailable there may be no lock
  await locks.request('n', { ifAvailable: true }, (lock) => lock.name)
  // @ts-expect-error the lease of an unfenced locker carries no fence
  await webLocks(unfenced).request('n', ({ lease }) => needsFence(lease.fence))
  // @ts-expect-error there is no such mode
  await locks.request('n', { mode: 'read' }, () => {})
  // @ts-expect-error the TTL is an option of webLocks
  await locks.request('n', { ttlMs: 1_000 }, () => {})
  // @ts-expect-error a callback is needed
  await locks.request('n')
  // @ts-expect-error a locker is needed, not a backend or a lock manager
  webLocks(locks)
  // @ts-expect-error there is no such option
  webLocks(fenced, { steal: true })
}
