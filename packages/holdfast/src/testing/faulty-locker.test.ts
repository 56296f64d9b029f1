import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { keepingLeases } from '../../test/rig.ts'
import { isHoldfastError } from '../base/errors.ts'
import { MemoryEngine, memory } from '../engines/memory/index.ts'
import { createLocker } from '../locker/locker.ts'
import { createFakeClock } from './fake-clock.ts'
import { faultyBackend } from './faulty-backend.ts'
import { seededRandom } from './seeded-random.ts'

function setUp() {
  const clock = createFakeClock()
  const random = seededRandom(1)
  const engine = new MemoryEngine({ clock, random })
  const faults = faultyBackend(memory({ engine, random }))
  const locker = keepingLeases(createLocker(faults, { ttlMs: 1_000 }))
  const rival = keepingLeases(createLocker(memory({ engine, random }), { ttlMs: 60_000 }))
  return { clock, engine, faults, locker, rival }
}

describe('a locker over a faulty backend', () => {
  test('T13 a release whose reply is lost is unknown, and nothing stays behind', async () => {
    const { faults, locker, clock, engine } = setUp()
    const lease = await locker.acquire('n')
    faults.next('release', { kind: 'lost-reply' })
    const outcome = lease.release()
    await clock.advance(5_000)
    assert.equal(await outcome, 'unknown')
    assert.equal(await lease.release(), 'unknown')
    assert.equal(engine.stats().names, 0)
  })

  test('T15 an acquire that failed at the client and lands later is given back', async () => {
    const { faults, locker, clock, engine } = setUp()
    await (await locker.acquire('warm-up')).release()
    faults.next('tryAcquire', { kind: 'late-landing', ms: 400 })
    await assert.rejects(locker.tryAcquire('n'), (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
    await clock.advance(400)
    assert.equal(faults.log.find((call) => call.fault === 'late-landing')?.landed, 1)
    assert.equal(engine.stats().names, 0)
    assert.notEqual(await locker.tryAcquire('n'), null)
  })

  test('T16 a lease over a frozen engine is lost at its deadline', async () => {
    const { faults, locker, clock } = setUp()
    const lease = await locker.acquire('n')
    faults.freeze()
    await clock.advance(987)
    assert.equal(lease.state, 'jeopardy')
    await clock.advance(1)
    assert.equal(lease.state, 'lost')
    assert.ok(isHoldfastError(lease.signal.reason, 'LEASE_LOST'))
  })

  test('T33 a black-holed connection alone ends the lease', async () => {
    const { faults, locker, clock } = setUp()
    const lease = await locker.acquire('n')
    for (let calls = 0; calls < 20; calls++) faults.next('keepAlive', { kind: 'lost-request' })
    await clock.advance(988)
    assert.equal(lease.state, 'lost')
  })

  test('a renewal waits for a keep-alive that lists its lease', async () => {
    const { faults, locker, clock } = setUp()
    const first = await locker.acquire('first')
    faults.next('keepAlive', { kind: 'late-reply', ms: 50 })
    faults.next('keepAlive', { kind: 'late-reply', ms: 50 })
    const renewal = first.renew()
    const second = await locker.acquire('second')
    const renewed: number[] = []
    for (const number of [1, 2]) second.renew().then(() => renewed.push(number))
    await clock.advance(50)
    await renewal
    assert.deepEqual(renewed, [], 'the first keep-alive was sent before the second lease existed')
    await clock.advance(50)
    assert.deepEqual(renewed, [1, 2])
  })

  test('G11 who gives up in the moment in which its session ends gets its own reason', async () => {
    const { locker, rival, clock } = setUp()
    await rival.acquire('n')
    const caller = new AbortController()
    const waiting = locker.acquire('n', { signal: caller.signal })
    await clock.settle()
    clock.block(2_000)
    // The locker notices here that its session has ended, and with it the position in the queue.
    const other = locker.tryAcquire('other')
    const reason = new Error('enough')
    caller.abort(reason)
    await assert.rejects(waiting, (error) => error === reason)
    await (await other)?.release()
  })

  test('T3 a renewal right after the machine has slept counts', async () => {
    const { locker, clock } = setUp()
    const lease = await locker.acquire('n')
    clock.suspend(600)
    assert.equal(lease.remainingMs, 388)
    await lease.renew()
    assert.equal(lease.remainingMs, 988)
  })
})
