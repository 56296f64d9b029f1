/** Every abandoned attempt leaves a mark at the engine, so a session that carries many is replaced. So is one that the engine calls full. */
import { expect, test } from 'vitest'
import { contextOf } from '../../test/context.ts'
import { createRig } from '../../test/rig.ts'
import { Cancellation } from '../base/cancellation.ts'
import { memory } from '../engines/memory/index.ts'
import { replace } from '../testing/conformance/wrapping.ts'
import { faultyBackend } from '../testing/faulty-backend.ts'
import { wantedLock } from './acquire-options.ts'
import { Acquiring } from './acquiring.ts'
import { Sessions } from './sessions.ts'

const maxSessions = 3
const maxAbandonedPerSession = 5
const ttlMs = 80_000_000

/** A locker’s inner parts with small limits; another client holds the name `busy`. */
async function setUp(isFull = () => false) {
  const { clock, engine, locker } = createRig()
  await locker().acquire('busy', { ttlMs })
  const backend = faultyBackend(
    replace(memory({ engine, clock }), {
      session: () => ({
        get isFull() {
          return isFull()
        },
      }),
    }),
  )
  const context = contextOf(backend, { maxSessions, maxAbandonedPerSession })
  const sessions = new Sessions(backend, context)
  const acquiring = new Acquiring(backend, context, sessions, new Cancellation())
  const wanted = (name: string) =>
    wantedLock(backend.info, name, { ttlMs }, { ttlMs, waitMs: Number.POSITIVE_INFINITY }, true)
  const acquire = (name: string, signal?: AbortSignal) =>
    acquiring.obtain(wanted(name), Number.POSITIVE_INFINITY, signal)
  return {
    clock,
    engine,
    faults: backend,
    acquire,
    tryAcquire: (name: string) => acquiring.tryOnce(wanted(name), undefined),
    /** As many waits as a session may carry marks, all of them cancelled. */
    async wearOut() {
      const caller = new AbortController()
      const waits = Array.from({ length: maxAbandonedPerSession }, () => acquire('busy', caller.signal))
      const settled = Promise.allSettled(waits)
      await clock.settle()
      caller.abort()
      await settled
      await clock.settle()
    },
  }
}

test('a worn-out session is closed when it is idle, and its marks go with it', async () => {
  const { engine, tryAcquire, wearOut } = await setUp()
  await wearOut()
  expect(engine.stats().sessions, 'only the stranger’s').toBe(1)
  const lease = await tryAcquire('free')
  expect(lease?.state).toBe('held')
  expect(engine.stats().sessions).toBe(2)
})

test('a worn-out session that carries a lease keeps it, and another session takes the new ones', async () => {
  const { faults, acquire, tryAcquire, wearOut } = await setUp()
  const carried = await acquire('carried')
  await wearOut()
  const lease = await tryAcquire('free')
  expect([carried.state, lease?.state]).toEqual(['held', 'held'])
  expect(faults.count('openSession')).toBe(2)
})

test('G10 G11 sessions that are all worn out and carry leases do not lock their client out', async () => {
  const { faults, acquire, tryAcquire, wearOut } = await setUp()
  for (let number = 0; number < maxSessions; number++) {
    await acquire(`long/${number}`)
    await wearOut()
  }
  const lease = await tryAcquire('free')
  expect(lease?.state).toBe('held')
  expect(faults.count('openSession')).toBe(maxSessions)
})

test('a full session keeps its leases, and takes new ones when it has room again, or when no other can be opened', async () => {
  let isFull = true
  const { faults, acquire, tryAcquire } = await setUp(() => isFull)
  for (let number = 0; number < maxSessions + 1; number++) await acquire(`long/${number}`)
  expect(faults.count('openSession')).toBe(maxSessions)
  isFull = false
  const lease = await tryAcquire('free')
  expect(lease?.state).toBe('held')
  expect(faults.count('openSession')).toBe(maxSessions)
})

test('G11 sessions that all wait for an answer refuse, and say so', async () => {
  const { clock, faults, tryAcquire } = await setUp()
  for (let number = 0; number < maxSessions; number++) {
    faults.next('tryAcquire', { kind: 'error-after' })
    faults.next('abandon', { kind: 'frozen' })
    await expect(tryAcquire('free')).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'unknown',
    })
  }
  await clock.settle()
  await expect(tryAcquire('free')).rejects.toMatchObject({
    code: 'BACKEND_UNAVAILABLE',
    outcome: 'not-applied',
    message: expect.stringMatching(/none of the 3 sessions can take another lease/),
  })
})
