/**
 * A real locker for your own tests, over an engine in memory, whose time you move and whose misfortunes you choose.
 *
 * ```ts
 * import { testLocker } from 'holdfast/testing'
 *
 * test('the job stops when its lease is lost', async () => {
 *   await using world = testLocker()
 *   const { locker, lose } = world
 *   const job = locker.withLease('nightly', (lease) => runJob(lease.signal))
 *   await world.clock.settle()
 *   await lose('nightly')
 *   await assert.rejects(job, { code: 'LEASE_LOST' })
 * })
 *
 * test('the store refuses a writer that was overtaken', async () => {
 *   await using world = testLocker()
 *   const slow = await world.locker.acquire('sku:42')
 *   const thief = await world.steal('sku:42')
 *   await store.write('from the thief', thief.fence)
 *   assert.equal(slow.state, 'held') // it does not know yet
 *   await assert.rejects(store.write('from the past', slow.fence), { code: 'FENCE_STALE' })
 * })
 *
 * test('a frozen engine ends the work in time', async () => {
 *   await using world = testLocker({ ttlMs: 10_000 })
 *   const lease = await world.locker.acquire('sku:42')
 *   world.freeze()
 *   await world.clock.advance(10_000)
 *   assert.equal(lease.state, 'lost')
 * })
 * ```
 */

import { type Clock, systemClock } from '../base/clock.ts'
import { InvalidArgumentError, quote } from '../base/errors.ts'
import { readBody } from '../base/lease-body.ts'
import { checkKnownOptions } from '../base/options.ts'
import type { AcquireOptions, FencedLease, LeaseBase, Locker } from '../base/types.ts'
import { MemoryEngine as Engine } from '../engines/memory/engine.ts'
import { type MemoryEngine, memory } from '../engines/memory/index.ts'
import { forceRelease } from '../kit/rules.ts'
import { createLocker, type LockerOptions } from '../locker/locker.ts'
import { createFakeClock, type FakeClock } from './fake-clock.ts'
import { faultyBackend } from './faulty-backend.ts'

export interface TestLockerOptions extends LockerOptions {
  /** Uses the system's clock instead of one that stands still. */
  readonly realTime?: boolean
}

export interface TestLocker<C extends Clock = FakeClock> extends AsyncDisposable {
  readonly locker: Locker<'fenced'>
  /** Stands still until you call `advance`; with `realTime`, the system's. */
  readonly clock: C
  /** For further lockers that compete with this one: `createLocker(memory({ engine }))`. */
  readonly engine: MemoryEngine
  /**
   * The locker's leases on this name are lost, as after an operator deleted the record or released it by force.
   * When the promise resolves, they know.
   */
  lose(name: string, how?: 'deleted' | 'force-released'): Promise<void>
  /** Another client takes the name over, with a higher token; its holder believes until its next renewal. */
  steal(name: string): Promise<FencedLease>
  /** The engine stops answering the locker. It goes on by itself: what is not renewed expires. */
  freeze(): void
  /** Requests that were sent meanwhile arrive now. */
  unfreeze(): void
  /** The same as leaving the scope of `await using`, which Node has from 24 on. */
  close(): Promise<void>
}

export function testLocker(options: TestLockerOptions & { readonly realTime: true }): TestLocker<Clock>
export function testLocker(options?: TestLockerOptions & { readonly realTime?: false }): TestLocker
export function testLocker(options: TestLockerOptions = {}): TestLocker<Clock> {
  checkKnownOptions('options', options, ['realTime', 'ttlMs', 'waitMs', 'holder', 'callTimeoutMs'])
  const { realTime = false, ...lockerOptions } = options
  const clock = realTime ? systemClock : createFakeClock()
  const engine = new Engine({ clock })
  const backend = faultyBackend(memory({ engine }))
  const { namespace } = backend.info
  const locker = createLocker(backend, lockerOptions)
  const leases = trackLeases(locker)
  const thief = createLocker(memory({ engine }), { holder: 'thief' })

  const close = async () => {
    backend.unfreeze()
    await drive(clock, Promise.all([locker.close({ graceMs: 0 }), thief.close()]))
    engine[Symbol.dispose]()
  }

  return {
    locker,
    clock,
    engine,
    async lose(name, how = 'deleted') {
      const live = leases.on(name)
      if (live.length === 0)
        throw new InvalidArgumentError(
          'name',
          `${quote(name)} is not held by the locker (yet: an acquire that is in flight needs await clock.settle() first).`,
        )
      if (backend.isFrozen)
        throw new InvalidArgumentError('lose', 'needs an engine that answers: call unfreeze() first.')
      if (how === 'deleted') engine.deleteName(namespace, name)
      else {
        const ids = engine.inspect(namespace, name)?.holders.map(({ id }) => id) ?? []
        const terms = { notAfterMs: Number.POSITIVE_INFINITY }
        engine.step((table) => forceRelease(table, { namespace, name }, ids, 'testLocker', terms))
      }
      await Promise.all(live.map(notice))
    },
    async steal(name) {
      const { holders = [], waiters = [] } = engine.inspect(namespace, name) ?? {}
      if (holders.length === 0) throw new InvalidArgumentError('name', `${quote(name)} is not held.`)
      if (holders.some(({ mode }) => mode === 'permits'))
        throw new InvalidArgumentError(
          'name',
          `${quote(name)} is a semaphore, whose permits cannot be taken over; use lose(name).`,
        )
      if (waiters.length > 0)
        throw new InvalidArgumentError('name', `${quote(name)} has other waiters, which come before a thief.`)
      engine.deleteName(namespace, name)
      return thief.acquire(name, { waitMs: 0 })
    },
    freeze: () => backend.freeze(),
    unfreeze: () => backend.unfreeze(),
    close,
    [Symbol.asyncDispose]: close,
  }
}

type Body<T> = (lease: FencedLease) => Promise<T> | T

/** Remembers what the locker hands out, without keeping it from the garbage collector. */
function trackLeases(locker: Locker<'fenced'>): { on(name: string): LeaseBase[] } {
  let tracked: WeakRef<LeaseBase>[] = []
  const live = () => tracked.flatMap((ref) => ref.deref() ?? []).filter((lease) => isLive(lease))
  const track = <L extends LeaseBase | null>(lease: L): L => {
    tracked = live().map((each) => new WeakRef(each))
    if (lease !== null) tracked.push(new WeakRef(lease))
    return lease
  }
  const { acquire, tryAcquire, acquireAll, acquirePermits, tryAcquirePermits, withLease } = locker
  // `withLeases` acquires through `acquireAll`, so its leases are seen as well.
  Object.assign(locker, {
    acquire: async (...args) => track(await acquire.apply(locker, args)),
    tryAcquire: async (...args) => track(await tryAcquire.apply(locker, args)),
    acquirePermits: async (...args) => track(await acquirePermits.apply(locker, args)),
    tryAcquirePermits: async (...args) => track(await tryAcquirePermits.apply(locker, args)),
    acquireAll: async (...args) => {
      const set = await acquireAll.apply(locker, args)
      for (const lease of set.leases) track(lease)
      return set
    },
    withLease: async <T>(name: string, optionsOrBody: AcquireOptions | Body<T>, maybeBody?: Body<T>) => {
      const { options, body } = readBody(optionsOrBody, maybeBody)
      return withLease.call(locker, name, options, (lease) => body(track(lease))) as Promise<T>
    },
  } satisfies Partial<Locker<'fenced'>>)
  return { on: (name) => live().filter((lease) => lease.name === name) }
}

/** A renewal is how a holder learns of a loss; this one comes at once and moves no clock. */
async function notice(lease: LeaseBase): Promise<void> {
  await lease.renew().catch(() => {})
  // The first may have joined a renewal that was answered before the loss.
  if (isLive(lease)) await lease.renew().catch(() => {})
}

/** A clock that stands still would keep `close` waiting for bodies that never end. */
async function drive(clock: Clock | FakeClock, work: Promise<unknown>): Promise<void> {
  let done = false
  const finish = () => {
    done = true
  }
  work.then(finish, finish)
  while (!done && 'advance' in clock) await clock.advance(100)
  await work
}

function isLive(lease: LeaseBase): boolean {
  return lease.state === 'held' || lease.state === 'jeopardy'
}
