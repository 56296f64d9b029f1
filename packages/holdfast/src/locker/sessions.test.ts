import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { createRig, peek } from '../../test/rig.ts'
import { defaults } from '../base/defaults.ts'
import { isHoldfastError } from '../base/errors.ts'
import type { CallKind, Fault } from '../testing/faults.ts'
import { type FaultyBackend, faultyBackend } from '../testing/faulty-backend.ts'
import type { LockerOptions } from './locker.ts'

/** A locker over a backend that counts its calls and fails when told to. */
function setUp(options: LockerOptions & { plan?: (call: { kind: CallKind }) => Fault | null } = {}) {
  const rig = createRig()
  const { plan = () => null, ...lockerOptions } = options
  let faults: FaultyBackend<'fenced'> | undefined
  const locker = rig.locker({
    ...lockerOptions,
    wrap: (backend) => {
      faults = faultyBackend(backend, { plan })
      return faults
    },
  })
  assert.ok(faults !== undefined)
  return { ...rig, locker, faults }
}

const ttls = (count: number) => Array.from({ length: count }, (_, index) => 10_000 + index)

describe('opening sessions', () => {
  test('T22 concurrent first acquires share one', async () => {
    const { locker, faults, engine } = setUp()
    const names = Array.from({ length: 50 }, (_, index) => `n${index}`)
    const leases = await Promise.all(names.map((name) => locker.acquire(name)))
    assert.equal(faults.count('openSession'), 1)
    assert.equal(engine.stats().sessions, 1)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('T22 also while its creation takes long, and when some of them give up meanwhile', async () => {
    const { locker, faults, clock } = setUp()
    faults.next('openSession', { kind: 'late-reply', ms: 1_000 })
    const controller = new AbortController()
    const gone = peek(locker.acquire('n', { signal: controller.signal }))
    const waiting = [locker.acquire('a'), locker.tryAcquire('b')]
    await clock.settle()
    controller.abort('enough')
    await clock.settle()
    assert.deepEqual(gone, { status: 'rejected', reason: 'enough' })
    await clock.advance(1_000)
    assert.ok((await Promise.all(waiting)).every((lease) => lease?.state === 'held'))
    assert.equal(faults.count('openSession'), 1)
  })

  test('one for each TTL in use, and the same one again for the same TTL', async () => {
    const { locker, faults } = setUp()
    for (const ttlMs of [5_000, 6_000, 5_000, 6_000, 5_000])
      await (await locker.acquire('n', { ttlMs })).release()
    assert.equal(faults.count('openSession'), 2)
  })

  test('an engine that ties the lock-delay to the session gets a session for each', async () => {
    const asked: (number | undefined)[] = []
    const rig = createRig()
    const locker = rig.locker({
      wrap: (backend) => {
        const open = backend.openSession.bind(backend)
        const openSession: typeof open = (request, call) => {
          asked.push(request.lockDelayMs)
          return open(request, call)
        }
        return Object.assign(backend, { openSession, info: { ...backend.info, lockDelay: 'session' } })
      },
    })
    await Promise.all([locker.acquire('a'), locker.acquire('b', { lockDelayMs: 5_000 }), locker.acquire('c')])
    await locker.acquire('d', { lockDelayMs: 5_000 })
    assert.deepEqual(asked, [0, 5_000])
  })

  test.each([
    ['enqueue', {}, "waiting: 'queue'"],
    ['setData', { waiting: 'poll' }, 'data: true'],
  ] as const)(
    'a backend that lacks the %s that it declares has a mistake, and is not unavailable',
    async (method, declared, by) => {
      const rig = createRig()
      const locker = rig.locker({
        wrap: (backend) => {
          const open = backend.openSession.bind(backend)
          const openSession: typeof open = async (request, call) =>
            Object.assign(await open(request, call), { [method]: undefined })
          return Object.assign(backend, { openSession, info: { ...backend.info, ...declared } })
        },
      })
      for (const failing of [locker.acquire('n'), locker.tryAcquire('n')])
        await assert.rejects(failing, {
          code: 'INVALID_ARGUMENT',
          message: `backend memory declares ${by} in its info, but its sessions have no method ${method}: implement it, or do not declare it.`,
        })
      assert.equal(rig.engine.stats().sessions, 0, 'nothing is left behind')
    },
  )

  test('a failed opening is reported and not remembered', async () => {
    const { locker, faults } = setUp()
    faults.next('openSession', { kind: 'error-before' })
    await assert.rejects(locker.acquire('n'), { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    await using lease = await locker.acquire('n')
    assert.equal(lease.state, 'held')
    assert.equal(faults.count('openSession'), 2)
  })

  test('a failed opening fails all who shared it, each with a typed error', async () => {
    const { locker, faults } = setUp()
    faults.next('openSession', { kind: 'error-before', error: new Error('ECONNREFUSED') })
    const results = await Promise.allSettled([
      locker.acquire('a'),
      locker.tryAcquire('b'),
      locker.acquireAll(['c']),
    ])
    for (const result of results)
      assert.ok(result.status === 'rejected' && isHoldfastError(result.reason, 'BACKEND_UNAVAILABLE'))
    assert.equal(faults.count('openSession'), 1)
  })

  test('T102 G11 a caller that joins an opening is told when it began, because its limit counts from then', async () => {
    const { locker, faults, clock } = setUp()
    faults.next('openSession', { kind: 'lost-request' })
    const first = peek(locker.acquire('a', { waitMs: 2_000 }))
    await clock.advance(2_000)
    assert.match(String(first.reason), /acquire of "a": no answer within 2000 ms\. /)
    const second = peek(locker.acquire('b', { waitMs: 5_000 }))
    await clock.advance(2_999)
    assert.equal(second.status, 'pending')
    await clock.advance(1)
    assert.match(
      String(second.reason),
      /opening a session: no answer within 5000 ms; an earlier call had begun this 2000 ms before\. It may/,
    )
    assert.equal(faults.count('openSession'), 1)
  })

  test('T16 an opening that is never answered ends at the limit of a call', async () => {
    const { locker, faults, clock } = setUp({ callTimeoutMs: 700 })
    faults.next('openSession', { kind: 'lost-request' })
    const seen = peek(locker.acquire('n'))
    await clock.advance(699)
    assert.equal(seen.status, 'pending')
    await clock.advance(1)
    assert.ok(isHoldfastError(seen.reason, 'BACKEND_UNAVAILABLE'))
    await using lease = await locker.acquire('n')
    assert.equal(lease.state, 'held')
  })
})

describe('more TTLs than sessions', () => {
  test(`at most ${defaults.maxSessions}, one after the other; the leases work all the same`, async () => {
    const { locker, faults, engine, clock } = setUp()
    const leases = []
    for (const ttlMs of ttls(40)) leases.push(await locker.acquire(`n${ttlMs}`, { ttlMs }))
    assert.equal(faults.count('openSession'), 32)
    assert.equal(engine.stats().sessions, 32)
    await clock.advance(60_000)
    assert.ok(leases.every((lease) => lease.state === 'held'))
    assert.equal(await locker.tryAcquire('n10039'), null)
    for (const lease of leases) assert.equal(await lease.release(), 'released')
  })

  test(`at most ${defaults.maxSessions}, all at once; the leases work all the same`, async () => {
    const { locker, faults, engine, clock } = setUp()
    const leases = await Promise.all(ttls(40).map((ttlMs) => locker.acquire(`n${ttlMs}`, { ttlMs })))
    assert.equal(faults.count('openSession'), 32)
    assert.equal(engine.stats().sessions, 32)
    await clock.advance(60_000)
    assert.ok(leases.every((lease) => lease.state === 'held'))
    for (const lease of leases) assert.equal(await lease.release(), 'released')
  })

  test('all at once, with an engine that is slow or fails: every call is answered', async () => {
    let opened = 0
    const { locker, clock, engine } = setUp({
      plan: ({ kind }) => {
        if (kind !== 'openSession') return null
        return ++opened % 3 === 0 ? { kind: 'error-before' } : { kind: 'late-reply', ms: 50 * (opened % 4) }
      },
    })
    const asked = ttls(60).map((ttlMs) => peek(locker.tryAcquire(`n${ttlMs}`, { ttlMs })))
    await clock.advance(2_000)
    for (const { status, value, reason } of asked) {
      if (status === 'fulfilled') assert.equal(value?.state, 'held')
      else
        assert.ok(
          isHoldfastError(reason, 'BACKEND_UNAVAILABLE') && /openSession/.test(reason.message),
          String(reason),
        )
    }
    assert.ok(asked.filter(({ status }) => status === 'fulfilled').length >= 32)
    assert.ok(engine.stats().sessions <= 32)
  })

  test('the lease rides on the session whose TTL comes nearest', async () => {
    const { locker } = setUp()
    const far = Array.from({ length: 31 }, (_, index) => 1_000_000 + index)
    const held = []
    for (const ttlMs of [...far, 20_000]) held.push(await locker.acquire(`n${ttlMs}`, { ttlMs }))
    const lease = await locker.acquire('n', { ttlMs: 21_000 })
    assert.equal(lease.remainingMs, 20_000 - 202)
    assert.ok(held.every(({ state }) => state === 'held'))
  })

  test('an idle session makes room for another TTL', async () => {
    const { locker, engine, faults, clock } = setUp()
    const leases = []
    for (const ttlMs of ttls(32)) leases.push(await locker.acquire(`n${ttlMs}`, { ttlMs }))
    await leases[0]?.release()
    await clock.advance(defaults.callTimeoutMs)
    const lease = await locker.acquire('n', { ttlMs: 50_000 })
    assert.equal(lease.remainingMs, 50_000 - 502)
    assert.equal(faults.count('openSession'), 33)
    assert.equal(engine.stats().sessions, 32)
    assert.ok(leases.slice(1).every(({ state }) => state === 'held'))
  })
})

describe('ending sessions', () => {
  test('an idle one is closed after 60 s, and the next acquire opens another', async () => {
    const { locker, engine, faults, clock } = setUp()
    await (await locker.acquire('n')).release()
    await clock.advance(59_000)
    assert.equal(engine.stats().sessions, 1, 'kept for the next acquire')
    await clock.advance(1_000 + 5_500)
    assert.deepEqual(engine.stats(), { sessions: 0, names: 0, waiters: 0, deadlines: 0 })
    assert.equal(clock.pendingTimers, 0, 'nothing ticks on')
    await using lease = await locker.acquire('n')
    assert.equal(lease.state, 'held')
    assert.equal(faults.count('openSession'), 2)
  })

  test('one that carries a lease or a waiter is not idle', async () => {
    const { locker, clock, engine } = setUp()
    const lease = await locker.acquire('n')
    const waiting = locker.acquire('n', { ttlMs: 20_000, waitMs: Number.POSITIVE_INFINITY })
    await clock.advance(200_000)
    assert.equal(engine.stats().sessions, 2)
    assert.equal(lease.state, 'held')
    await lease.release()
    assert.equal((await waiting).state, 'held')
  })

  test('one that is opened while closing is closed at once, although bodies still run', async () => {
    const { locker, faults, engine, clock } = setUp()
    const body = Promise.withResolvers<void>()
    const running = peek(locker.withLease('a', { ttlMs: 5_000 }, () => body.promise))
    await clock.settle()
    faults.next('openSession', { kind: 'late-reply', ms: 100 })
    const acquiring = peek(locker.acquire('b', { ttlMs: 6_000 }))
    await clock.settle()
    const closed = locker.close({ graceMs: 10_000 })
    await clock.advance(100)
    assert.ok(isHoldfastError(acquiring.reason, 'CLOSED'))
    assert.equal(running.status, 'pending')
    assert.equal(engine.stats().sessions, 1, "the body's own")
    body.resolve()
    await closed
    assert.equal(engine.stats().sessions, 0)
  })

  test('T29 close leaves no timer, least of all one that keeps the process alive', async () => {
    const { locker, clock } = setUp()
    const lease = await locker.acquire('a')
    await lease.renew()
    await lease.release()
    await locker.acquire('b')
    await locker.close()
    assert.equal(clock.pendingTimers, 0)
  })

  test('close ends all of them, also one that is being opened', async () => {
    const { locker, faults, engine, clock } = setUp()
    await using _ = await locker.acquire('a', { ttlMs: 5_000 })
    faults.next('openSession', { kind: 'late-reply', ms: 100 })
    const acquiring = peek(locker.acquire('b', { ttlMs: 6_000 }))
    await clock.settle()
    assert.equal(engine.stats().sessions, 2)
    const closed = locker.close()
    await clock.advance(100)
    await closed
    assert.ok(isHoldfastError(acquiring.reason, 'CLOSED'))
    assert.equal(engine.stats().sessions, 0)
    await assert.rejects(locker.acquire('c'), { code: 'CLOSED' })
  })
})
