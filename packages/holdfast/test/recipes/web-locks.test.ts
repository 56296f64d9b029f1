/**
 * The Web Locks API, from the text of its specification (https://w3c.github.io/web-locks/): each name has the section. `Fleet`: where
 * a fleet differs, as docs/web-locks.md lists it.
 */
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { LeaseLostError } from '../../src/base/errors.ts'
import { onEvent } from '../../src/base/events.ts'
import { ignore } from '../../src/base/ignore.ts'
import { checkName } from '../../src/base/names.ts'
import { overriding } from '../../src/base/overriding.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import type { Backend } from '../../src/spi.ts'
import { weakenWaiting } from '../../src/testing/weaken-waiting.ts'
import { type WebLock, type WebLockManager, type WebLockOptions, webLocks } from '../../src/web-locks.ts'
import { createRig, eventsDuring, peek } from '../rig.ts'
import { startProgram } from '../start-program.ts'
import { describeRecipe, type RecipeWorld } from './worlds.ts'

const name = 'invoices/2026-11'
const shared = { mode: 'shared' } as const
const ifAvailable = { ifAvailable: true } as const
const steal = { steal: true } as const

type Locks = WebLockManager<'fenced'>

/** The callback of a request that must not be granted. */
const unreached = () => {
  throw new Error('the callback was called')
}

/** Arguments as a program without types gives them. */
function call(locks: Locks, ...given: readonly unknown[]): Promise<unknown> {
  return (locks.request as (...given: readonly unknown[]) => Promise<unknown>)(...given)
}

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => expect.unreachable(`it was fulfilled with ${String(value)}`),
    (error: unknown) => error,
  )
}

async function expectDomException(promise: Promise<unknown>, expected: string): Promise<DOMException> {
  const error = await failureOf(promise)
  expect(error).toBeInstanceOf(DOMException)
  expect((error as DOMException).name).toBe(expected)
  return error as DOMException
}

/** A request whose callback holds the lock until it is told to end, or the world of a failed test is closed. */
function hold(locks: Locks, options: WebLockOptions = {}, wanted = name) {
  const granted = Promise.withResolvers<WebLock<'fenced'>>()
  const work = Promise.withResolvers<unknown>()
  const done = locks.request(wanted, options, (lock) => {
    if (lock === null) return work.promise
    const { signal } = lock.lease
    signal.addEventListener('abort', () => signal.reason.reason === 'closed' && work.resolve('closed'))
    granted.resolve(lock)
    return work.promise
  })
  done.catch(granted.reject)
  granted.promise.catch(ignore)
  return { granted: granted.promise, end: work.resolve, fail: work.reject, done }
}

/** Two processes of a fleet. */
async function two(world: RecipeWorld, options = {}) {
  const [locker, stranger] = [await world.locker({ holder: 'ada' }), await world.locker({ holder: 'bob' })]
  const locks = webLocks(locker, options)
  const others = webLocks(stranger, options)
  const waiting = (count: number) =>
    world.until(`${count} wait`, async () => (await locks.query()).pending.length === count)
  const expectNothingHeld = async () => expect(await locks.query()).toEqual({ held: [], pending: [] })
  return { locker, stranger, locks, others, waiting, expectNothingHeld }
}

describeRecipe(
  'Web Locks',
  ({ test }) => {
    // --- 2 Concepts ------------------------------------------------------------------------------------------

    test('2.1 Resource names: one that begins with a hyphen is refused, and one that contains one is not', async (world) => {
      const { locks, expectNothingHeld } = await two(world)
      for (const reserved of ['-', '-foo'])
        await expectDomException(locks.request(reserved, unreached), 'NotSupportedError')
      expect(await locks.request('x-anything', (lock) => lock.name)).toBe('x-anything')
      await expectNothingHeld()
    })

    test('2.3 Modes: shared locks go together, an exclusive one waits for them, and later ones wait behind it', async (world) => {
      const { locks, others, waiting } = await two(world)
      const readers = [hold(locks, shared), hold(others, shared)]
      for (const reader of readers) expect((await reader.granted).mode).toBe('shared')
      const writer = hold(others)
      await waiting(1)
      const late = hold(locks, shared)
      await waiting(2)
      for (const reader of readers) reader.end('read')
      expect((await writer.granted).mode).toBe('exclusive')
      expect((await locks.query()).pending).toHaveLength(1)
      writer.end('written')
      await late.granted
      late.end('read')
      expect(await Promise.all([...readers, writer, late].map(({ done }) => done))).toEqual([
        'read',
        'read',
        'written',
        'read',
      ])
    })

    test('2.4 Locks: held until the promise of the callback settles, then released, then the request settles', async (world) => {
      const { locks, others } = await two(world)
      const holder = hold(locks)
      await holder.granted
      const settled = peek(holder.done)
      expect(await others.request(name, ifAvailable, (lock) => lock)).toBeNull()
      expect(settled.status).toBe('pending')
      holder.end('ok')
      expect(await holder.done).toBe('ok')
      // It is free in this very moment.
      expect(await others.request(name, ifAvailable, (lock) => lock?.name)).toBe(name)
    })

    test('2.4 Locks: the result of the callback is that of the request, whether it is a promise or not', async (world) => {
      const { locks } = await two(world)
      expect(await locks.request(name, () => 123)).toBe(123)
      expect(await locks.request(name, async () => 'later')).toBe('later')
      expect(await locks.request(name, () => undefined)).toBeUndefined()
      // biome-ignore lint/suspicious/noThenProperty: a thenable is a result as well
      const thenable = { then: (resolve: (value: number) => void) => resolve(7) }
      expect(await call(locks, name, () => thenable)).toBe(7)
    })

    test('2.4 Locks: what the callback throws rejects the request, and the lock is released', async (world) => {
      const { locks, expectNothingHeld } = await two(world)
      const error = { name: 'test' }
      expect(await failureOf(locks.request(name, () => Promise.reject(error)))).toBe(error)
      const thrown = { wasCalled: false }
      // biome-ignore lint/suspicious/noThenProperty: a thenable that is thrown is not asked
      const thenable = { then: () => Object.assign(thrown, { wasCalled: true }) }
      const throwing = () => {
        throw thenable
      }
      expect((await locks.request(name, throwing).then(ignore, (error) => [error]))?.[0]).toBe(thenable)
      expect(thrown.wasCalled).toBe(false)
      await expectNothingHeld()
    })

    test('2.4 Locks: a lock keeps its own client out as well', async (world) => {
      const { locks } = await two(world)
      await locks.request(name, async () => {
        expect(await locks.request(name, ifAvailable, (lock) => lock)).toBeNull()
      })
    })

    // --- 3.2.1 The request() method --------------------------------------------------------------------------

    test('3.2.1 request(): wrong types reject with TypeError, and nothing is held', async (world) => {
      const { locks, expectNothingHeld } = await two(world)
      const wrong: readonly (readonly unknown[])[] = [
        [],
        [name],
        ...[undefined, null, 123, 'abc', [], {}, new Promise(ignore)].map((callback) => [name, callback]),
        ...[undefined, null, {}, 1].map((callback) => [name, {}, callback]),
        ...[5, 'exclusive', true, Symbol('options')].map((options) => [name, options, unreached]),
        ...['foo', '', null, 1, {}, Symbol('mode')].map((mode) => [name, { mode }, unreached]),
        ...['text', 12.34, false, {}, Symbol('signal'), unreached, null].map((signal) => [
          name,
          { signal },
          unreached,
        ]),
        [Symbol('name'), unreached],
      ]
      for (const given of wrong) expect(await failureOf(call(locks, ...given))).toBeInstanceOf(TypeError)
      await expectNothingHeld()
    })

    test('3.2.1 request(): arguments are converted before the first step, and as Web IDL does it', async (world) => {
      const { locks } = await two(world)
      expect(await failureOf(call(locks, '-', { mode: 'foo' }, unreached))).toBeInstanceOf(TypeError)
      expect(await failureOf(call(locks, '-', {}, 5))).toBeInstanceOf(TypeError)
      expect(await call(locks, 5, (lock: WebLock) => lock.name)).toBe('5')
      for (const options of [undefined, null, [], unreached, { mode: undefined, waitMs: 3 }])
        expect(await call(locks, name, options, (lock: WebLock) => lock.mode)).toBe('exclusive')
      await locks.request(name, async () => {
        expect(await call(locks, name, { ifAvailable: 'no' }, (lock: unknown) => lock)).toBeNull()
      })
      const { request } = locks
      expect(await request(name, () => 'without this')).toBe('without this')
    })

    test('3.2.1 request(): combinations of steal, ifAvailable, mode and signal that reject with NotSupportedError', async (world) => {
      const { locks, expectNothingHeld } = await two(world, { allowSteal: true })
      const { signal } = new AbortController()
      const refused: readonly WebLockOptions[] = [
        { steal: true, ifAvailable: true },
        { steal: true, mode: 'shared' },
        { signal, steal: true },
        { signal, ifAvailable: true },
        // The combination is looked at before the signal.
        { signal: AbortSignal.abort('why'), ifAvailable: true },
        { signal: AbortSignal.abort('why'), steal: true },
      ]
      for (const options of refused)
        await expectDomException(locks.request(name, options, unreached), 'NotSupportedError')
      const aborted = { signal: AbortSignal.abort('why') }
      await expectDomException(locks.request('-', aborted, unreached), 'NotSupportedError')
      // What is false is not there.
      expect(await locks.request(name, { signal, steal: false, ifAvailable: false }, () => 'ok')).toBe('ok')
      await expectNothingHeld()
    })

    test('3.2.1 request(): a signal that has aborted rejects with its reason, and the engine is not asked', async (world) => {
      const { locker, locks } = await two(world)
      const before = world.wireOf(locker).count()
      await expectDomException(locks.request(name, { signal: AbortSignal.abort() }, unreached), 'AbortError')
      const reason = { why: 'the dog ate it' }
      const signal = AbortSignal.abort(reason)
      expect(await failureOf(locks.request(name, { signal }, unreached))).toBe(reason)
      // A name that is refused comes after it.
      expect(await failureOf(locks.request('', { signal }, unreached))).toBe(reason)
      expect(world.wireOf(locker).count()).toBe(before)
    })

    // --- 3.3 The Lock class ----------------------------------------------------------------------------------

    test('3.3 Lock: has its name and mode, and the lease with its fence', async (world) => {
      const { locker, locks } = await two(world)
      await locks.request(name, async ({ name: lockName, mode, lease }) => {
        expect([lockName, mode]).toEqual([name, 'exclusive'])
        expect([lease.state, lease.signal.aborted, lease.remainingMs > 0]).toEqual(['held', false, true])
        expect(await locker.check(lease.fence)).toBe(true)
      })
      expect(await locks.request(name, shared, ({ mode, lease }) => [mode, lease.fence.mode])).toEqual([
        'shared',
        'shared',
      ])
    })

    // --- 4.1 Request a lock ----------------------------------------------------------------------------------

    test('4.1 ifAvailable: the callback gets null if the lock is taken, and its outcome is that of the request', async (world) => {
      const { locks, others, expectNothingHeld } = await two(world)
      const holder = hold(others, shared)
      await holder.granted
      expect(await locks.request(name, ifAvailable, (lock) => [lock])).toEqual([null])
      expect(await locks.request(name, ifAvailable, async (lock) => [lock])).toEqual([null])
      const error = { name: 'test' }
      const throwing = (lock: unknown) => {
        expect(lock).toBeNull()
        throw error
      }
      expect(await failureOf(locks.request(name, ifAvailable, throwing))).toBe(error)
      expect(await failureOf(locks.request(name, ifAvailable, async (lock) => throwing(lock)))).toBe(error)
      // Shared with shared, and another name.
      const both = { ...shared, ...ifAvailable }
      expect(await locks.request(name, both, (lock) => lock?.mode)).toBe('shared')
      expect(await locks.request('another', ifAvailable, (lock) => lock?.name)).toBe('another')
      holder.end('ok')
      await holder.done
      await expectNothingHeld()
    })

    test('4.1 ifAvailable: is not grantable while others wait', async (world) => {
      const { locks, others, waiting } = await two(world)
      const reader = hold(locks, shared)
      await reader.granted
      const writer = hold(others)
      await waiting(1)
      expect(await locks.request(name, { ...shared, ...ifAvailable }, (lock) => lock)).toBeNull()
      reader.end('ok')
      await writer.granted
      writer.end('ok')
      await writer.done
    })

    test('4.1 ifAvailable: a callback that fails with a time-out of its own is not called again', async (world) => {
      const { locks, stranger } = await two(world)
      const held = await stranger.acquire('another')
      let calls = 0
      const nested = () => {
        calls++
        return stranger.acquire('another', { waitMs: 0 })
      }
      expect(await failureOf(locks.request(name, ifAvailable, nested))).toMatchObject({
        code: 'ACQUIRE_TIMEOUT',
      })
      expect(calls).toBe(1)
      await held.release()
    })

    test('4.1 requests are granted in the order in which they were queued', async (world) => {
      const { locks, others, waiting } = await two(world)
      const granted: number[] = []
      const first = hold(locks)
      await first.granted
      const rest = []
      for (const index of [1, 2, 3]) {
        rest.push([locks, others][index % 2]?.request(name, () => granted.push(index)))
        await waiting(index)
      }
      first.end('ok')
      await Promise.all(rest)
      expect(granted).toEqual([1, 2, 3])
    })

    test('4.1 a request waits for longer than the locker waits by default', async (world) => {
      const ada = await world.locker()
      const bob = await world.locker({ waitMs: world.ttlMs })
      const holder = hold(webLocks(ada))
      await holder.granted
      const waiter = hold(webLocks(bob))
      const settled = peek(waiter.done)
      for (let ttls = 0; ttls < 3; ttls++) await world.passTime(world.ttlMs)
      expect(settled.status).toBe('pending')
      holder.end('ok')
      await waiter.granted
      waiter.end('ok')
      await waiter.done
    })

    // --- 4.3 Abort a request ---------------------------------------------------------------------------------

    test('4.3 G6 an abort ends the wait with its reason, leaves no waiter, and lets the next one go on', async (world) => {
      const { locks, others, waiting } = await two(world)
      const reader = hold(locks, shared)
      await reader.granted
      const controller = new AbortController()
      const writer = others.request(name, { signal: controller.signal }, unreached)
      const failure = failureOf(writer)
      await waiting(1)
      const late = hold(locks, shared)
      await waiting(2)
      const reason = { why: 'the cat handled it' }
      controller.abort(reason)
      expect(await failure).toBe(reason)
      // It was behind the writer only.
      await late.granted
      expect((await locks.query()).pending).toEqual([])
      for (const each of [reader, late]) each.end('ok')
      await Promise.all([reader.done, late.done])
    })

    test('4.3 an abort in the turn of the request ends it, although the lock is free', async (world) => {
      const { locks, expectNothingHeld } = await two(world)
      const controller = new AbortController()
      const request = locks.request(name, { signal: controller.signal }, unreached)
      controller.abort()
      await expectDomException(request, 'AbortError')
      await world.until('it is free', async () => (await locks.query()).held.length === 0)
      expect(await locks.request(name, () => 'next')).toBe('next')
      await expectNothingHeld()
    })

    test('4.3 an abort with the loss of another lock rejects with that very error', async (world) => {
      const { locks, others } = await two(world)
      const holder = hold(others)
      await holder.granted
      const controller = new AbortController()
      const failure = failureOf(locks.request(name, { signal: controller.signal }, unreached))
      const reason = new LeaseLostError('another', 'expired')
      controller.abort(reason)
      expect(await failure).toBe(reason)
      holder.end('ok')
      await holder.done
    })

    // --- 4.4 Process the lock request queue ------------------------------------------------------------------

    test('4.4 G6 an abort between the grant and the callback: it is not called, and the lock is released', async (world) => {
      const { locks, expectNothingHeld } = await two(world)
      const controller = new AbortController()
      const stop = onEvent('acquired', () => controller.abort('too late'))
      try {
        expect(await failureOf(locks.request(name, { signal: controller.signal }, unreached))).toBe(
          'too late',
        )
      } finally {
        stop()
      }
      await expectNothingHeld()
    })

    test('4.4 an abort after the grant has no effect, nor has one after the release', async (world) => {
      const { locks } = await two(world)
      const controller = new AbortController()
      const holder = hold(locks, { signal: controller.signal })
      const { lease } = await holder.granted
      controller.abort()
      expect([lease.state, lease.signal.aborted]).toEqual(['held', false])
      holder.end('resolved ok')
      expect(await holder.done).toBe('resolved ok')
      const later = new AbortController()
      const request = locks.request(name, { signal: later.signal }, () => 'ok')
      await request
      later.abort()
      expect(await request).toBe('ok')
    })

    // --- 3.2.2 and 4.5 The query() method --------------------------------------------------------------------

    test('4.5 query(): held and pending locks with name, mode and clientId, and nothing else', async (world) => {
      const { locks, others, waiting, expectNothingHeld } = await two(world)
      await expectNothingHeld()
      const readers = [hold(locks, shared), hold(others, shared), hold(locks, {}, 'another')]
      for (const { granted } of readers) await granted
      const writer = hold(others)
      await waiting(1)
      const { held, pending } = await others.query()
      const byClient = (a: { clientId: string }, b: { clientId: string }) =>
        a.clientId < b.clientId ? -1 : 1
      expect(held.filter((lock) => lock.name === name).sort(byClient)).toEqual([
        { name, mode: 'shared', clientId: 'ada' },
        { name, mode: 'shared', clientId: 'bob' },
      ])
      expect(held.filter((lock) => lock.name !== name)).toEqual([
        { name: 'another', mode: 'exclusive', clientId: 'ada' },
      ])
      expect(pending).toEqual([{ name, mode: 'exclusive', clientId: 'bob' }])
      for (const reader of readers) reader.end('ok')
      await writer.granted
      writer.end('ok')
      await Promise.all([...readers, writer].map(({ done }) => done))
      await expectNothingHeld()
    })

    // --- where a fleet differs -------------------------------------------------------------------------------

    test('Fleet: a name that the locker refuses rejects with INVALID_ARGUMENT, and nothing is held', async (world) => {
      const { locks, expectNothingHeld } = await two(world, { allowSteal: true })
      for (const refused of ['', 'abc\0def', '\ud800', '/a', 'a//b', '..', 'x'.repeat(256)]) {
        expect(() => checkName(refused)).toThrow()
        for (const options of [{}, ifAvailable, steal])
          expect(await failureOf(locks.request(refused, options, unreached))).toMatchObject({
            code: 'INVALID_ARGUMENT',
          })
      }
      expect(await locks.request('\uffff', (lock) => lock.name)).toBe('\uffff')
      await expectNothingHeld()
    })

    test('Fleet: steal needs allowSteal, and without it no holder loses its lock', async (world) => {
      const { locker, locks, others } = await two(world)
      const holder = hold(others)
      const { lease } = await holder.granted
      await expectDomException(locks.request(name, steal, unreached), 'NotSupportedError')
      const truthy = webLocks(locker, { allowSteal: 'yes' as never })
      await expectDomException(truthy.request(name, steal, unreached), 'NotSupportedError')
      await lease.renew()
      expect(lease.state).toBe('held')
      holder.end('ok')
      expect(await holder.done).toBe('ok')
    })

    test('Fleet: a stolen lock is lost at its next keep-alive, and its request rejects with AbortError before the callback ends', async (world) => {
      const { locks, others } = await two(world, { allowSteal: true })
      const holder = hold(locks)
      const { lease } = await holder.granted
      const thief = hold(others, steal)
      const stolen = await thief.granted
      expect(stolen.lease.fence.token > lease.fence.token).toBe(true)
      // Not told yet, so both believe. A guard can tell them apart.
      expect(lease.state).toBe('held')
      await world.until('it is told', () => lease.signal.aborted, 1)
      const error = await expectDomException(holder.done, 'AbortError')
      expect(error.cause).toBe(lease.signal.reason)
      expect(error.cause).toMatchObject({ code: 'LEASE_LOST', reason: 'force-released', leaseId: lease.id })
      // The callback runs on. Its outcome has no effect, neither here nor on the thief.
      holder.end('too late')
      await world.passTime(0)
      expect(stolen.lease.state).toBe('held')
      thief.end('ok')
      expect(await thief.done).toBe('ok')
    })

    test('Fleet: steal takes all shared holders, and the last of two thieves wins', async (world) => {
      const { locks, others } = await two(world, { allowSteal: true })
      const readers = [hold(locks, shared), hold(locks, shared)]
      for (const { granted } of readers) await granted
      const first = hold(others, steal)
      await first.granted
      const last = hold(locks, steal)
      await last.granted
      await world.passTime(world.ttlMs)
      for (const each of [...readers, first]) {
        await expectDomException(each.done, 'AbortError')
        each.end('too late')
      }
      last.end('ok')
      expect(await last.done).toBe('ok')
      expect(await locks.request(name, steal, (lock) => lock?.name)).toBe(name)
    })

    test('Fleet: a thief queues at the end', async (world) => {
      const { locks, others, waiting } = await two(world, { allowSteal: true })
      const holder = hold(locks)
      await holder.granted
      const waiter = hold(locks)
      await waiting(1)
      const thief = hold(others, steal)
      await waiter.granted
      await waiting(1)
      expect((await locks.query()).pending).toEqual([{ name, mode: 'exclusive', clientId: 'bob' }])
      waiter.end('ok')
      await thief.granted
      thief.end('ok')
      await Promise.all([waiter.done, thief.done])
      await world.passTime(world.ttlMs)
      await expectDomException(holder.done, 'AbortError')
      holder.end('too late')
    })

    test('Fleet: a thief whose locker drains or is closed is refused, and the holder keeps its lock', async (world) => {
      const { locker, locks, others } = await two(world, { allowSteal: true })
      const holder = hold(others)
      const { lease } = await holder.granted
      const kept = await locker.acquire('kept')
      const closed = locker.close({ drainMs: 60_000 })
      expect(await failureOf(locks.request(name, steal, unreached))).toMatchObject({ code: 'CLOSED' })
      await kept.release()
      await closed
      expect(await failureOf(locks.request(name, steal, unreached))).toMatchObject({ code: 'CLOSED' })
      await lease.renew()
      expect(lease.state).toBe('held')
      holder.end('ok')
      expect(await holder.done).toBe('ok')
    })

    test('Fleet: a semaphore is refused with CAPACITY_MISMATCH, steal does not touch its permits, and query() shows leases and leaves it out', async (world) => {
      const { locks, stranger } = await two(world, { allowSteal: true })
      const permit = await stranger.acquirePermits(name, { capacity: 2 })
      for (const options of [{}, ifAvailable, steal])
        expect(await failureOf(locks.request(name, options, unreached))).toMatchObject({
          code: 'CAPACITY_MISMATCH',
        })
      await permit.renew()
      expect(permit.state).toBe('held')
      const lease = await stranger.acquire('another')
      const held = [{ name: 'another', mode: 'exclusive', clientId: 'bob' }]
      expect(await locks.query()).toEqual({ held, pending: [] })
      await lease.release()
      await permit.release()
    })

    test('Fleet: G3 a lock that cannot be renewed is lost at its deadline, and the next one has it', async (world) => {
      const { locker, locks, others } = await two(world)
      const holder = hold(locks)
      const { lease } = await holder.granted
      const next = hold(others)
      const waiting = peek(next.granted)
      world.kill(locker)
      await world.until('it is lost', () => lease.signal.aborted, 2)
      const error = await expectDomException(holder.done, 'AbortError')
      expect(error.cause).toMatchObject({ code: 'LEASE_LOST', reason: 'unreachable' })
      await world.until('it is handed over', () => waiting.status === 'fulfilled')
      next.end('ok')
      await next.done
      holder.fail(new Error('not used'))
      await world.passTime(0)
    })

    test('Fleet: T56 an engine that cannot be reached rejects, and is not taken for a lock that is taken', async (world) => {
      const { locker, locks } = await two(world)
      await locks.request(name, () => 'reached')
      world.wireOf(locker).cutOff()
      expect(await failureOf(locks.request(name, ifAvailable, unreached))).toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
      })
      expect(await failureOf(locks.query())).toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
      // A request that waits goes on when the engine is back.
      const waiting = locks.request(name, () => 'granted')
      await world.passTime(world.ttlMs / 10)
      world.wireOf(locker).restore()
      const settled = peek(waiting)
      await world.until('it is granted', () => settled.status === 'fulfilled', 20)
    })

    test('Fleet: an engine that cannot be reached at the first contact rejects the request', async (world) => {
      const locker = await world.locker()
      world.wireOf(locker).cutOff()
      expect(await failureOf(webLocks(locker).request(name, unreached))).toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
      })
      world.wireOf(locker).restore()
    })

    test('Fleet: two calls of one tick exclude each other, whichever the engine takes first', async (world) => {
      const { locks, others } = await two(world)
      const inside = { now: 0, most: 0, calls: 0 }
      const work = async () => {
        inside.most = Math.max(inside.most, ++inside.now)
        await sleep(0)
        inside.calls++
        inside.now--
      }
      await Promise.all([locks, others, locks, others].map((each) => each.request(name, work)))
      expect(inside).toEqual({ now: 0, most: 1, calls: 4 })
    })

    test('Fleet: closing the locker ends what waits with CLOSED, and what is held with AbortError', async (world) => {
      const { locker, locks, stranger } = await two(world)
      const other = await stranger.acquire('another')
      const granted = Promise.withResolvers<WebLock>()
      const work = Promise.withResolvers<void>()
      const broken = failureOf(
        locks.request(name, (lock) => {
          granted.resolve(lock)
          return work.promise
        }),
      )
      const { lease } = await granted.promise
      const waiter = failureOf(locks.request('another', unreached))
      const closed = locker.close()
      expect(await broken).toMatchObject({
        name: 'AbortError',
        cause: { code: 'LEASE_LOST', reason: 'closed' },
      })
      expect(await waiter).toMatchObject({ code: 'CLOSED' })
      expect(lease.signal.aborted).toBe(true)
      // Closing waits for the callback.
      expect(await stranger.tryAcquire(name)).toBeNull()
      work.resolve()
      await closed
      expect(await failureOf(locks.request(name, unreached))).toMatchObject({ code: 'CLOSED' })
      await other.release()
    })

    test('Fleet: ttlMs is that of every lock', async (world) => {
      const { locker } = await two(world)
      const ttlMs = world.ttlMs * 2
      const locks = webLocks(locker, { ttlMs })
      expect(await locks.request(name, ({ lease }) => lease.remainingMs)).toBeGreaterThan(world.ttlMs)
      const bad: readonly object[] = [{ ttlMs: 1 }, { ttlMs: '1' }, { ttl: 1 }, [], 'options' as never]
      for (const options of bad) expect(() => webLocks(locker, options)).toThrow(/ttlMs|options/)
    })
  },
  ['memory', 'sqlite', 'redis'],
)

// --- on memory alone: moments that only a fake clock can hit -------------------------------------------------

const ttlMs = 1_000

test('2.6 Termination: a callback that never settles keeps its lock, although nothing refers to it', async () => {
  const rig = createRig()
  const stranger = rig.locker()
  // In a function of its own: nothing of it may stay on the stack of this test.
  const begin = () => {
    const locks = webLocks(rig.locker({ dropsLeases: true }), { ttlMs })
    return new Promise<void>((resolve) => {
      locks.request(name, () => {
        resolve()
        return new Promise(ignore)
      })
    })
  }
  await begin()
  const dropped = await eventsDuring('dropped', async () => {
    for (let round = 0; round < 5; round++) {
      globalThis.gc?.()
      await rig.clock.advance(ttlMs / 2)
      await sleep(1)
    }
  })
  expect(dropped).toEqual([])
  expect(await stranger.tryAcquire(name)).toBeNull()
})

test('Fleet: G3 T8 a callback that ends after the deadline of a blocked process rejects with AbortError', async () => {
  const rig = createRig()
  const locks = webLocks(rig.locker(), { ttlMs })
  const holder = hold(locks)
  await holder.granted
  rig.clock.block(2 * ttlMs)
  holder.end('ok')
  const error = await expectDomException(holder.done, 'AbortError')
  expect(error.cause).toMatchObject({ code: 'LEASE_LOST', reason: 'expired' })
})

test('Fleet: G3 a lock that is lost between its grant and its callback rejects with AbortError, and it is not called', async () => {
  const rig = createRig()
  const locks = webLocks(rig.locker(), { ttlMs })
  const stop = onEvent('acquired', () => rig.clock.block(2 * ttlMs))
  try {
    for (const options of [{}, ifAvailable]) {
      const error = await expectDomException(locks.request(name, options, unreached), 'AbortError')
      expect(error.cause).toMatchObject({ code: 'LEASE_LOST', reason: 'expired' })
    }
  } finally {
    stop()
  }
})

test('Fleet: T74 a holder that came after the thief had looked keeps the lock', async () => {
  const rig = createRig()
  const locks = webLocks(rig.locker(), { ttlMs })
  const holder = hold(locks)
  await holder.granted
  const next = hold(locks)
  let looks = 0
  const wrap = (backend: Backend<'fenced'>) =>
    overriding(backend, {
      inspect: async (looked, call) => {
        const seen = await backend.inspect(looked, call)
        if (looks++ === 0) {
          holder.end('ok')
          await next.granted
        }
        return seen
      },
    })
  const thief = hold(webLocks(rig.locker({ wrap }), { ttlMs, allowSteal: true }), steal)
  const { lease } = await next.granted
  await rig.clock.advance(ttlMs)
  expect(lease.state).toBe('held')
  next.end('ok')
  expect(await next.done).toBe('ok')
  await thief.granted
  thief.end('ok')
  await thief.done
})

test('Fleet: what the callback throws about another lease is its own error', async () => {
  const rig = createRig()
  const locks = webLocks(rig.locker())
  const own = new LeaseLostError('another', 'expired')
  expect(await failureOf(locks.request(name, () => Promise.reject(own)))).toBe(own)
})

test('Fleet: on an engine that polls requests are granted, and query() shows no pending ones', async () => {
  const rig = createRig()
  const locks = webLocks(rig.locker({ wrap: weakenWaiting }))
  const holder = hold(locks)
  await holder.granted
  const waiter = hold(locks)
  const waiting = peek(waiter.granted)
  await rig.clock.advance(ttlMs)
  expect((await locks.query()).pending).toEqual([])
  expect(waiting.status).toBe('pending')
  holder.end('ok')
  await rig.clock.advance(ttlMs)
  expect(waiting.status).toBe('fulfilled')
  waiter.end('ok')
  await waiter.done
})

test('Fleet: a lock that is held keeps its process alive, until the locker is closed', async () => {
  const child = startProgram(join(import.meta.dirname, '../process/children/web-locks.ts'))
  await child.printed('held')
  // Long enough for a process with nothing to wait for to end.
  await sleep(300)
  expect(child.process.exitCode).toBeNull()
  child.process.kill('SIGTERM')
  expect(await child.ended).toEqual({ code: 0, signal: null, lines: ['held', 'AbortError'], errors: '' })
})

test('a backend is not taken for a locker', async () => {
  await using backend = memory()
  for (const wrong of [backend, {}, undefined, null, createLocker])
    expect(() => webLocks(wrong as never)).toThrow(/locker must be a locker/)
})
