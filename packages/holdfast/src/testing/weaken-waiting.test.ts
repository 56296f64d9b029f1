import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { keepingLeases } from '../../test/rig.ts'
import { callWith } from '../base/aborting.ts'
import { defaults } from '../base/defaults.ts'
import { isHoldfastError } from '../base/errors.ts'
import { MemoryEngine, memory } from '../engines/memory/index.ts'
import { createLocker } from '../locker/locker.ts'
import { createFakeClock } from './fake-clock.ts'
import { faultyBackend } from './faulty-backend.ts'
import { seededRandom } from './seeded-random.ts'
import { weakenWaiting } from './weaken-waiting.ts'

const LONGEST_POLL_MS = defaults.pollMs + defaults.pollJitterMs

function setUp() {
  const clock = createFakeClock()
  const random = seededRandom(3)
  const engine = new MemoryEngine({ clock, random })
  const faults = faultyBackend(weakenWaiting(memory({ engine, random })))
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
    const weak = weakenWaiting(strong)
    assert.deepEqual({ ...weak.info, driftMs: 0 }, { ...strong.info, waiting: 'poll', driftMs: 0 })
    assert.equal(weak.info.driftMs(1_000), strong.info.driftMs(1_000))
    const session = await weak.openSession({ id: 'weak', ttlMs: 1_000, holder: 'h' }, callWith())
    assert.equal('enqueue' in session, false)
    const attached = await weak.attachSession(session.handle, callWith())
    assert.equal(attached !== null && 'enqueue' in attached, false)
  })

  test('G6 poll: a waiter goes on in another session when its own has something unresolved', async () => {
    const { clock, locker, rival, faults } = setUp()
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

  test('poll: a waiter is served at the next poll', async () => {
    const { clock, locker, rival } = setUp()
    const held = await rival.acquire('n')
    const wait = timed(clock, locker.acquire('n'))
    await clock.advance(1_000)
    assert.equal(wait.afterMs, undefined)
    await held.release()
    await clock.advance(LONGEST_POLL_MS)
    assert.ok(wait.afterMs !== undefined && wait.afterMs > 1_000)
  })

  test('T28 polling costs one try for every interval', async () => {
    const { clock, locker, rival, faults } = setUp()
    await rival.acquire('n')
    locker.acquire('n').catch(() => {})
    await clock.advance(10_000)
    const tries = faults.count('tryAcquire')
    assert.ok(tries >= 10_000 / LONGEST_POLL_MS && tries <= 10_000 / defaults.pollMs + 1, `${tries} tries`)
  })

  test('T26 poll: who does not wait tries once', async () => {
    const { clock, locker, rival, faults } = setUp()
    await rival.acquire('n')
    assert.equal(await locker.tryAcquire('n'), null)
    assert.equal(faults.count('tryAcquire'), 1)
    await assert.rejects(locker.acquire('n', { waitMs: 0 }), (error) =>
      isHoldfastError(error, 'ACQUIRE_TIMEOUT'),
    )
    await clock.advance(5_000)
    assert.equal(faults.count('tryAcquire'), 2)
  })

  test('T26 poll: a wait lasts as long as it was asked for, also past names that come and go', async () => {
    const { clock, locker, rival } = setUp()
    const held = await rival.acquire('n')
    // The next waiter at the engine gets it inside the release: the name is never free.
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

  test('T27 poll: an abort is noticed at once, between two tries', async () => {
    const { clock, locker, rival, engine } = setUp()
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

  test('T27 poll: an abort is noticed at once, in the backoff after a failure', async () => {
    const { clock, locker, rival, faults } = setUp()
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
})
