import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { keepingLeases } from '../../test/rig.ts'
import { MemoryEngine, memory } from '../backends/memory/index.ts'
import { defaults } from '../core/defaults.ts'
import { isHoldfastError } from '../core/errors.ts'
import { createLocker } from '../core/locker.ts'
import { createFakeClock } from './fake-clock.ts'
import type { FaultPlan } from './faults.ts'
import { faultyBackend } from './faulty-backend.ts'
import { seededRandom } from './seeded-random.ts'
import { type WeakenWaitingOptions, weakenWaiting } from './weaken-waiting.ts'

const LONGEST_POLL_MS = defaults.pollMs + defaults.pollJitterMs

function setUp(waiting: 'notify' | 'poll', options?: WeakenWaitingOptions) {
  const clock = createFakeClock()
  const random = seededRandom(3)
  const engine = new MemoryEngine({ clock, random })
  const faults = faultyBackend(weakenWaiting(memory({ engine, random }), waiting, options))
  return {
    clock,
    engine,
    faults,
    locker: keepingLeases(createLocker(faults)),
    rival: keepingLeases(createLocker(memory({ engine, random }))),
  }
}

/** When a promise settled, in milliseconds from now on the clock. */
function timed(clock: ReturnType<typeof createFakeClock>, promise: Promise<unknown>) {
  const startMs = clock.monotonicMs()
  const seen: { afterMs?: number; value?: unknown; error?: unknown } = {}
  const at = () => clock.monotonicMs() - startMs
  promise.then(
    (value) => Object.assign(seen, { afterMs: at(), value }),
    (error: unknown) => Object.assign(seen, { afterMs: at(), error }),
  )
  return seen
}

describe('weakened waiting', () => {
  test('says what is left, and leaves everything else', async () => {
    const strong = memory()
    const call = new AbortController()
    for (const waiting of ['notify', 'poll'] as const) {
      const weak = weakenWaiting(strong, waiting)
      assert.deepEqual({ ...weak.info, driftMs: 0 }, { ...strong.info, waiting, driftMs: 0 })
      assert.equal(weak.info.driftMs(1_000), strong.info.driftMs(1_000))
      const session = await weak.openSession({ id: waiting, ttlMs: 1_000, holder: 'h' }, call)
      assert.equal('enqueue' in session, false)
      assert.equal('waitForFree' in session, waiting === 'notify')
      const attached = await weak.attachSession(session.handle, call)
      assert.equal(attached !== null && 'waitForFree' in attached, waiting === 'notify')
    }
  })

  test('G12 nobody is notified by a backend that cannot be watched', () => {
    const { watch: _, ...blind } = weakenWaiting(memory(), 'poll')
    assert.throws(
      () => weakenWaiting(blind, 'notify'),
      (error) => isHoldfastError(error, 'UNSUPPORTED'),
    )
  })

  test('notify: a waiter is served when the holder releases, without waiting for the next poll', async () => {
    const { clock, locker, rival, faults } = setUp('notify')
    const held = await rival.acquire('n')
    const wait = timed(clock, locker.acquire('n'))
    await clock.advance(50)
    await (await rival.acquire('n2')).release()
    assert.equal(faults.count('tryAcquire'), 2)
    await held.release()
    await clock.settle()
    assert.equal(wait.afterMs, 50)
    assert.equal(faults.count('tryAcquire'), 3)
  })

  test('notify: a waiter is served when the time of a dead holder is up', async () => {
    const { clock, locker, rival, engine } = setUp('notify')
    await rival.acquire('n', { maxHoldMs: 120 })
    const wait = timed(clock, locker.acquire('n'))
    await clock.advance(200)
    assert.equal(wait.afterMs, 120)
    assert.equal(engine.stats().waiters, 0)
  })

  test('T19 a release between the failed try and the subscription is not missed', async () => {
    const { clock, locker, rival, faults } = setUp('notify')
    const held = await rival.acquire('n')
    faults.next('tryAcquire', { kind: 'late-reply', ms: 100 })
    const wait = timed(clock, locker.acquire('n'))
    await clock.advance(60)
    // The engine has said "busy", the waiter has not heard it yet, and nobody will release again.
    await held.release()
    await clock.advance(40)
    assert.equal(wait.afterMs, 100)
  })

  test('T19 a release between the subscription and the second try is not missed', async () => {
    const { clock, locker, rival, faults } = setUp('notify')
    const held = await rival.acquire('n')
    faults.next('tryAcquire', { kind: 'late-reply', ms: 100 })
    faults.next('tryAcquire', { kind: 'late-reply', ms: 100 })
    const wait = timed(clock, locker.acquire('n'))
    await clock.advance(150)
    await held.release()
    await clock.advance(50)
    assert.equal(wait.afterMs, 200)
  })

  test('notify: spurious hints cost a try each and change nothing', async () => {
    const { clock, locker, rival, faults } = setUp('notify', { spuriousAfterMs: 40 })
    const held = await rival.acquire('n')
    const wait = timed(clock, locker.acquire('n', { waitMs: 1_000 }))
    await clock.advance(500)
    assert.equal(wait.afterMs, undefined)
    const tries = faults.count('tryAcquire')
    assert.ok(tries >= 20 && tries <= 26, `${tries} tries in 500 ms, two for every hint`)
    await held.release()
    await clock.settle()
    assert.equal(wait.afterMs, 500)
  })

  test('G6 poll: a waiter goes on in another session when its own has something unresolved', async () => {
    const { clock, locker, rival, faults } = setUp('poll')
    const held = await rival.acquire('n')
    const wait = timed(clock, locker.acquire('n', { waitMs: Number.POSITIVE_INFINITY }))
    await clock.advance(1)
    faults.next('tryAcquire', { kind: 'error-after' })
    for (let times = 0; times < 100; times++) faults.next('abandon', { kind: 'error-before' })
    await assert.rejects(locker.tryAcquire('other'), { outcome: 'unknown' })
    await clock.advance(LONGEST_POLL_MS * 2)
    assert.equal(faults.count('openSession'), 2)
    await held.release()
    await clock.advance(LONGEST_POLL_MS)
    // The first session is given up after a TTL; what the waiter has got does not ride on it.
    await clock.advance(defaults.ttlMs * 2)
    assert.equal((wait.value as { state: string }).state, 'held')
  })

  test('T28 notify: hints that come at once, again and again, are no hot loop', async () => {
    const { clock, locker, rival, faults } = setUp('notify', { spuriousAfterMs: 0 })
    const held = await rival.acquire('n')
    const wait = timed(clock, locker.acquire('n', { waitMs: 1_000 }))
    await clock.advance(500)
    assert.equal(wait.afterMs, undefined)
    assert.ok(faults.count('tryAcquire') < 250, `${faults.count('tryAcquire')} tries in 500 ms`)
    await held.release()
    await clock.advance(500)
  })

  test('T28 notify: who cannot be notified polls', async () => {
    const { clock, engine, rival } = setUp('notify')
    // A loop that lets no time pass would never end: it is cut short.
    const plan: FaultPlan = ({ kind, number }) => {
      if (kind === 'waitForFree') return { kind: 'error-before' }
      return number > 1_000 ? { kind: 'lost-request' } : null
    }
    const deaf = faultyBackend(weakenWaiting(memory({ engine }), 'notify'), { plan })
    await rival.acquire('n')
    createLocker(deaf)
      .acquire('n')
      .catch(() => {})
    await clock.advance(2_000)
    const tries = deaf.count('tryAcquire')
    assert.ok(tries <= 2 * (2_000 / defaults.pollMs + 1), `${tries} tries in 2 s`)
  })

  test('poll: a waiter is served at the next poll', async () => {
    const { clock, locker, rival } = setUp('poll')
    const held = await rival.acquire('n')
    const wait = timed(clock, locker.acquire('n'))
    await clock.advance(1_000)
    assert.equal(wait.afterMs, undefined)
    await held.release()
    await clock.advance(LONGEST_POLL_MS)
    assert.ok(wait.afterMs !== undefined && wait.afterMs > 1_000)
  })

  test('T28 polling costs one try for every interval', async () => {
    const { clock, locker, rival, faults } = setUp('poll')
    await rival.acquire('n')
    locker.acquire('n').catch(() => {})
    await clock.advance(10_000)
    const tries = faults.count('tryAcquire')
    assert.ok(tries >= 10_000 / LONGEST_POLL_MS && tries <= 10_000 / defaults.pollMs + 1, `${tries} tries`)
  })

  for (const waiting of ['notify', 'poll'] as const) {
    test(`T26 ${waiting}: who does not wait tries once`, async () => {
      const { clock, locker, rival, faults } = setUp(waiting)
      await rival.acquire('n')
      assert.equal(await locker.tryAcquire('n'), null)
      assert.equal(faults.count('tryAcquire'), 1)
      await assert.rejects(locker.acquire('n', { waitMs: 0 }), (error) =>
        isHoldfastError(error, 'ACQUIRE_TIMEOUT'),
      )
      await clock.advance(5_000)
      assert.equal(faults.count('tryAcquire'), 2)
    })

    test(`T26 ${waiting}: a wait lasts as long as it was asked for, also past names that come and go`, async () => {
      const { clock, locker, rival } = setUp(waiting)
      const held = await rival.acquire('n')
      // The next in line at the engine gets it inside the release: the name is never free.
      const next = rival.acquire('n')
      const wait = timed(clock, locker.acquire('n', { waitMs: 1_000 }))
      await clock.advance(300)
      await held.release()
      await clock.advance(699)
      assert.equal(wait.afterMs, undefined)
      await clock.advance(1)
      assert.equal(wait.afterMs, 1_000)
      assert.ok(isHoldfastError(wait.error, 'ACQUIRE_TIMEOUT'))
      await (await next).release()
    })

    test(`T27 ${waiting}: an abort is noticed at once, between two tries`, async () => {
      const { clock, locker, rival, engine } = setUp(waiting)
      const held = await rival.acquire('n')
      const caller = new AbortController()
      const wait = timed(clock, locker.acquire('n', { signal: caller.signal }))
      await clock.advance(333)
      const reason = new Error('enough')
      caller.abort(reason)
      await clock.settle()
      assert.deepEqual([wait.afterMs, wait.error], [333, reason])
      await held.release()
      await clock.advance(2_000)
      assert.equal(engine.stats().names, 0)
    })

    test(`T27 ${waiting}: an abort is noticed at once, in the backoff after a failure`, async () => {
      const { clock, locker, rival, faults } = setUp(waiting)
      await rival.acquire('n')
      const caller = new AbortController()
      for (let failures = 0; failures < 12; failures++) faults.next('tryAcquire', { kind: 'error-before' })
      const wait = timed(clock, locker.acquire('n', { signal: caller.signal }))
      await clock.advance(2_000)
      const before = faults.count('tryAcquire')
      assert.ok(before < 12, 'it is in the middle of a long backoff')
      const reason = new Error('enough')
      caller.abort(reason)
      await clock.settle()
      assert.deepEqual([wait.afterMs, wait.error], [2_000, reason])
      await clock.advance(5_000)
      assert.equal(faults.count('tryAcquire'), before)
    })
  }
})
