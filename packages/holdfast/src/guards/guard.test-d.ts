/** Types that must not compile, and types that must. Checked by the type check of the repository; never run. */
import type { DatabaseSync } from 'node:sqlite'
import type { Fence } from '../base/fence.ts'
import type {
  AnyLocker,
  FencedLease,
  Fencing,
  Lease,
  LeaseSet,
  Locker,
  Permit,
  UnfencedLease,
} from '../base/types.ts'
import { type SqliteGuard, sqliteGuard } from '../engines/sqlite/guard/sqlite-guard.ts'
import type { Guard } from './guard.ts'
import { MemoryResource, type MemoryTx, memoryGuard } from './memory.ts'

declare const guard: Guard<{ readonly some: 'transaction' }>
declare const tx: { readonly some: 'transaction' }
declare const fence: Fence
declare const fenced: FencedLease
declare const unfenced: UnfencedLease
declare const permit: Permit
declare const either: Lease<Fencing>
declare const set: LeaseSet<'fenced'>
declare const unfencedSet: LeaseSet<'unfenced'>
declare const effect: () => Promise<void>
const plain = { issuer: 'i', name: 'n', mode: 'exclusive', token: 1n, grant: 'g' } as const

export async function accepted(): Promise<void> {
  await guard.run(fence, effect)
  await guard.run(fenced, effect)
  await guard.run(fenced.fence, effect)
  await guard.run([fence, fenced], effect, { once: true, signal: new AbortController().signal })
  await guard.run([fence, fenced] as const, effect)
  await guard.run(set.leases, effect)
  await guard.run(set.fences, effect)
  await guard.enter(tx, fence)
  await guard.enter(tx, fenced, { once: true })
  await guard.enter(tx, [fenced, fence])
  if (either.fencing === 'fenced') await guard.run(either, effect)
}

export async function refused(): Promise<void> {
  // @ts-expect-error an unfenced lease is no proof
  await guard.run(unfenced, effect)
  // @ts-expect-error an unfenced lease is no proof
  await guard.enter(tx, unfenced)
  // @ts-expect-error nor in a list
  await guard.run([fenced, unfenced], effect)
  // @ts-expect-error several hold permits at once
  await guard.run(permit, effect)
  // @ts-expect-error several hold permits at once
  await guard.enter(tx, permit)
  // @ts-expect-error only core and parseFence make fences
  await guard.run(plain, effect)
  // @ts-expect-error only core and parseFence make fences
  await guard.enter(tx, plain)
  // @ts-expect-error a copy with another token is not a fence
  await guard.enter(tx, { ...plain, token: fence.token })
  // @ts-expect-error a token alone does not say whose it is
  await guard.run(1n, effect)
  // @ts-expect-error a token alone does not say whose it is
  await guard.enter(tx, fence.token)
  // @ts-expect-error a text must be parsed, and verified if it comes from strangers
  await guard.run('hf1/i/n/exclusive/1/g', effect)
  // @ts-expect-error it must be narrowed by `fencing` first
  await guard.run(either, effect)
  // @ts-expect-error leases of an unfenced backend, several at once
  await guard.run(unfencedSet.leases, effect)
  // @ts-expect-error a set is not a proof itself; its leases or its fences are
  await guard.run(set, effect)
  // @ts-expect-error the transaction comes first
  await guard.enter(fence, tx)
  // @ts-expect-error a misspelt option
  await guard.run(fence, effect, { onec: true })
  // @ts-expect-error enter does not wait, so there is nothing to call off
  await guard.enter(tx, fence, { signal: new AbortController().signal })
}

export async function lockers(
  fencedLocker: Locker<'fenced'>,
  redlock: Locker<'unfenced'>,
  any: AnyLocker,
): Promise<void> {
  await fencedLocker.withLease('n', (lease) => guard.run(lease, effect))
  // @ts-expect-error Redlock issues no fencing token
  await redlock.withLease('n', (lease) => guard.run(lease, effect))
  // @ts-expect-error a permit is unfenced whatever the backend is
  await guard.run(await fencedLocker.acquirePermits('n', { capacity: 3 }), effect)
  const lease = await any.acquire('n')
  // @ts-expect-error whether it is fenced is known only at run time
  await guard.run(lease, effect)
  if (any.fencing === 'fenced') await guard.run(await any.acquire('n'), effect)
}

export function transactions(database: DatabaseSync): void {
  const onConnection: SqliteGuard<DatabaseSync> = sqliteGuard({ database })
  const onPath: SqliteGuard<DatabaseSync> = sqliteGuard({ path: 'file.db' })
  const onMap: Guard<MemoryTx<number>> = memoryGuard({ resource: new MemoryResource<number>() })
  void onConnection.run(fence, (connection) => connection.prepare('SELECT 1').get())
  void onPath.enter(database, fence)
  void onMap.run(fence, (map) => map.set('a', 1))
  // @ts-expect-error values have a type
  void onMap.run(fence, (map) => map.set('a', 'one'))
  // @ts-expect-error the file or the connection, not both
  sqliteGuard({ database, path: 'file.db' })
  // @ts-expect-error the file or the connection
  sqliteGuard({ name: 'guard' })
  const result: Promise<number> = guard.run(fence, async () => 5)
  void result
}
