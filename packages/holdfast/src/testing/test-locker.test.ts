import assert from 'node:assert/strict'
import { afterEach, describe, test, vi } from 'vitest'
import { isHoldfastError } from '../base/errors.ts'
import { memory } from '../engines/memory/index.ts'
import type { Fence, FencedLease } from '../index.ts'
import { createLocker } from '../locker/locker.ts'
import { testLocker } from './test-locker.ts'

const isLost = (error: unknown) => isHoldfastError(error, 'LEASE_LOST')
const isInvalid = (error: unknown) => isHoldfastError(error, 'INVALID_ARGUMENT')

/** A resource without a guard of its own: it remembers the highest token, as a user's test might. */
function tokenStore() {
  let highest = 0n
  return {
    write({ token }: Fence) {
      assert.ok(token >= highest, `token ${token} is older than ${highest}`)
      highest = token
    },
  }
}

describe('testLocker', () => {
  test('lose: the work under a lease is told to stop, without any time passing', async () => {
    await using world = testLocker()
    const startMs = world.clock.monotonicMs()
    let stoppedBy: unknown
    const job = world.locker.withLease('nightly', async (lease) => {
      await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
      stoppedBy = lease.signal.reason
      return 'half done'
    })
    await world.clock.settle()
    const [, outcome] = await Promise.all([world.lose('nightly'), Promise.allSettled([job])])
    const [{ status, reason }] = outcome as [PromiseRejectedResult]
    assert.equal(status, 'rejected')
    assert.ok(isHoldfastError(reason, 'LEASE_LOST'))
    assert.deepEqual([reason.reason, reason.body], ['deleted', { status: 'fulfilled', value: 'half done' }])
    assert.ok(isLost(stoppedBy))
    assert.equal(world.clock.monotonicMs(), startMs)
  })

  test('lose: all ways of acquiring are covered, and other names are left alone', async () => {
    await using world = testLocker()
    const { locker } = world
    const bystander = await locker.acquire('bystander')
    const [first, second] = (await locker.acquireAll(['set-1', 'set-2'])).leases
    const shared = [
      await locker.acquire('shared', { mode: 'shared' }),
      await locker.tryAcquire('shared', { mode: 'shared' }),
    ]
    const permits = [
      await locker.acquirePermits('pool', { capacity: 3 }),
      await locker.tryAcquirePermits('pool', { capacity: 3 }),
    ]
    for (const name of ['set-1', 'shared', 'pool']) await world.lose(name)
    for (const lease of [first, ...shared, ...permits]) assert.equal(lease?.state, 'lost')
    assert.deepEqual([second?.state, bystander.state], ['held', 'held'])
  })

  test('lose: can look like an operator who releases by force', async () => {
    await using world = testLocker()
    const lease = await world.locker.acquire('n')
    await world.lose('n', 'force-released')
    assert.equal(lease.state, 'lost')
    assert.ok(isHoldfastError(lease.signal.reason, 'LEASE_LOST'))
    assert.equal(lease.signal.reason.reason, 'force-released')
    assert.equal(await lease.release(), 'not-held')
    assert.equal((await world.locker.acquire('n')).state, 'held')
  })

  test('lose: also when a renewal is in flight', async () => {
    await using world = testLocker()
    const lease = await world.locker.acquire('n')
    const renewal = lease.renew()
    await world.lose('n')
    assert.equal(lease.state, 'lost')
    await renewal.catch(() => {})
  })

  test('lose and steal need a holder of the name', async () => {
    await using world = testLocker()
    await assert.rejects(world.lose('n'), isInvalid)
    await assert.rejects(world.steal('n'), isInvalid)
    await (await world.locker.acquire('n')).release()
    await assert.rejects(world.lose('n'), isInvalid)
  })

  test('steal: the thief has a higher token while the first still believes', async () => {
    await using world = testLocker()
    const store = tokenStore()
    const slow = await world.locker.acquire('sku:42')
    store.write(slow.fence)
    const thief: FencedLease = await world.steal('sku:42')
    assert.ok(thief.fence.token > slow.fence.token)
    assert.equal(thief.fence.issuer, slow.fence.issuer)
    assert.deepEqual([slow.state, slow.signal.aborted, thief.state], ['held', false, 'held'])
    store.write(thief.fence)
    assert.throws(() => store.write(slow.fence), /older/)
    assert.deepEqual(
      [await world.locker.check(slow.fence), await world.locker.check(thief.fence)],
      [false, true],
    )
  })

  test('steal: the first learns at its next renewal that it was overtaken, and cannot hurt the thief', async () => {
    await using world = testLocker({ ttlMs: 10_000 })
    const slow = await world.locker.acquire('n')
    const thief = await world.steal('n')
    await world.clock.advance(4_000)
    assert.equal(slow.state, 'lost')
    assert.equal(slow.signal.reason.reason, 'taken-over')
    assert.equal(await slow.release(), 'not-held')
    assert.equal(thief.state, 'held')
    await thief.release()
    assert.equal((await world.locker.acquire('n', { waitMs: 0 })).state, 'held')
  })

  test('steal: a waiter in the queue comes first, so it is refused', async () => {
    await using world = testLocker()
    const lease = await world.locker.acquire('n')
    const next = world.locker.acquire('n')
    await world.clock.settle()
    await assert.rejects(world.steal('n'), isInvalid)
    await lease.release()
    assert.equal((await next).state, 'held')
  })

  test('steal: permits cannot be taken over, and close ends the world without await using', async () => {
    const world = testLocker()
    const permit = await world.locker.acquirePermits('p', { capacity: 2 })
    await assert.rejects(world.steal('p'), /semaphore/)
    await world.close()
    assert.equal(permit.state, 'lost')
    await assert.rejects(world.locker.acquire('x'), { code: 'CLOSED' })
  })

  test('freeze: the lease is lost at its deadline, and everything goes on after unfreeze', async () => {
    await using world = testLocker({ ttlMs: 10_000 })
    const lease = await world.locker.acquire('n')
    world.freeze()
    await world.clock.advance(9_000)
    assert.equal(lease.state, 'jeopardy')
    await world.clock.advance(1_000)
    assert.equal(lease.state, 'lost')
    await assert.rejects(lease.ensure(100), isLost)
    world.unfreeze()
    const again = world.locker.acquire('n')
    await world.clock.advance(0)
    assert.equal((await again).state, 'held')
  })

  test('freeze: another locker of the engine goes on, and takes over what expires', async () => {
    await using world = testLocker({ ttlMs: 10_000 })
    await using rival = createLocker(memory({ engine: world.engine }))
    const lease = await world.locker.acquire('n')
    const next = rival.acquire('n')
    world.freeze()
    await assert.rejects(world.lose('n'), isInvalid)
    await world.clock.advance(10_000)
    const successor = await next
    assert.deepEqual([lease.state, successor.state], ['lost', 'held'])
    assert.ok(successor.fence.token > lease.fence.token)
  })

  test('a body that never ends does not keep the end of the test waiting', async () => {
    const world = testLocker()
    const body = world.locker.withLease('n', () => new Promise(() => {}))
    body.catch(() => {})
    await world.clock.settle()
    world.freeze()
    await world[Symbol.asyncDispose]()
    assert.equal(world.clock.pendingTimers, 0)
    assert.equal(world.engine.stats().sessions, 0)
  })

  test('realTime: the same on the system clock', async () => {
    await using world = testLocker({ realTime: true, ttlMs: 150 })
    const lost = await world.locker.acquire('lost')
    await world.lose('lost')
    assert.equal(lost.state, 'lost')
    const held = await world.locker.acquire('held')
    world.freeze()
    await new Promise((resolve) => held.signal.addEventListener('abort', resolve))
    assert.equal(held.remainingMs, 0)
  })

  test('nonsense options are refused', () => {
    assert.throws(() => testLocker({ realtime: true } as object), isInvalid)
  })
})

describe('beside fake timers of the test runner', () => {
  afterEach(() => void vi.useRealTimers())

  // With what only Jest fakes by itself.
  const timers = ['setTimeout', 'clearTimeout', 'setImmediate', 'Date', 'performance'] as const
  const everything = { toFake: [...timers, 'hrtime' as const, 'queueMicrotask' as const] }

  test.each([
    ['what vitest fakes by itself', {}],
    ['everything', everything],
  ])('%s: time is that of the world, and nothing hangs', async (_, faked) => {
    vi.useFakeTimers(faked)
    const world = testLocker({ ttlMs: 10_000 })
    const lease = await world.locker.acquire('sku:42')
    const waiting = world.locker.acquire('sku:42', { waitMs: 60_000 })
    await world.clock.advance(30_000)
    assert.equal(lease.state, 'held')
    await lease.release()
    const next = await waiting
    world.freeze()
    await world.clock.advance(10_000)
    assert.equal(next.state, 'lost')
    await world.close()
  })

  test('in real time, the timers are those of the test runner', async () => {
    vi.useFakeTimers(everything)
    const world = testLocker({ realTime: true, ttlMs: 10_000 })
    const lease = await world.locker.acquire('sku:42')
    await vi.advanceTimersByTimeAsync(30_000)
    assert.equal(lease.state, 'held')
    world.freeze()
    await vi.advanceTimersByTimeAsync(10_000)
    assert.equal(lease.state, 'lost')
    await world.close()
  })
})
