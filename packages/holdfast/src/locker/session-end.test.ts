/** The end of a session that is given up, and of the leases that ride on it. */
import { describe, expect, test } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'
import { createRig, peek } from '../../test/rig.ts'
import { defaults } from '../base/defaults.ts'
import { onEvent } from '../base/events.ts'
import type { FaultyBackend } from '../testing/faulty-backend.ts'

const ttlMs = 9_000

/** After one TTL without an answer to an abandon, the session is given up. */
async function giveUp({ clock, client, faults }: ReturnType<typeof setUp>): Promise<void> {
  faults.next('tryAcquire', { kind: 'error-after' })
  neverAnswer(faults, 'abandon')
  await expect(client.tryAcquire('unresolved', { ttlMs })).rejects.toMatchObject({ outcome: 'unknown' })
  await clock.advance(2 * ttlMs)
}

function neverAnswer(faults: FaultyBackend<'fenced'>, kind: 'abandon' | 'release'): void {
  for (let count = 0; count < 200; count++) faults.next(kind, { kind: 'error-before' })
}

function setUp() {
  const rig = createFaultyRig()
  return { ...rig, ...rig.faulty() }
}

describe('a session that is given up', () => {
  test.each([
    [0, 1],
    [60_000, 0],
  ])(
    'with a lock-delay of %i ms is closed at the engine %i times: a close would bring no delay',
    async (lockDelayMs, closes) => {
      const stage = setUp()
      await stage.client.acquire('a', { ttlMs, lockDelayMs })
      await giveUp(stage)
      expect(stage.faults.count('close')).toBe(closes)
    },
  )

  test.each([
    [0, 1],
    [60_000, 0],
  ])(
    'with a release that is not answered, and %i ms for which the name stays closed, is closed %i times',
    async (holdAtLeastMs, closes) => {
      const { clock, client, faults, locker } = setUp()
      const lease = await client.acquire('cron', { ttlMs, holdAtLeastMs })
      neverAnswer(faults, 'release')
      neverAnswer(faults, 'abandon')
      expect(await lease.release()).toBe('unknown')
      await clock.advance(2 * ttlMs)
      expect(faults.count('close')).toBe(closes)
      if (closes > 0) expect(await locker().tryAcquire('cron')).not.toBeNull()
    },
  )

  test('T17 tells its waiters, also while the engine answers nothing, and they ask for another session', async () => {
    const { client, clock, faults, locker } = setUp()
    const holder = await locker().acquire('a', { ttlMs: 600_000 })
    const waiting = peek(client.acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    expect(faults.count('openSession')).toBe(1)
    faults.freeze()
    await clock.advance(2 * ttlMs)
    expect(faults.count('openSession')).toBeGreaterThan(1)
    faults.unfreeze()
    await clock.advance(ttlMs)
    await holder.release()
    await clock.advance(ttlMs)
    expect(waiting.status).toBe('fulfilled')
  })
})

test('a release that is repeated for a while keeps the name closed for as long as was promised, and no longer', async () => {
  const { client, clock, faults, locker } = setUp()
  const lease = await client.acquire('cron', { ttlMs, holdAtLeastMs: 60_000 })
  for (let count = 0; count < 9; count++) faults.next('release', { kind: 'error-before' })
  expect(await lease.release()).toBe('unknown')
  await clock.advance(59_999)
  expect(faults.count('release')).toBe(10)
  expect(await locker().tryAcquire('cron')).toBeNull()
  await clock.advance(1)
  expect(await locker().tryAcquire('cron')).not.toBeNull()
})

test('a session whose leases were lost is idle, and is closed after a while', async () => {
  const { client, clock, faults, locker } = setUp()
  const lease = await client.acquire('a', { ttlMs })
  await locker().forceRelease('a', { all: true, reason: 'a test' })
  await clock.advance(ttlMs)
  expect(lease.state).toBe('lost')
  await clock.advance(defaults.idleSessionMs + ttlMs)
  expect(faults.count('close')).toBe(1)
})

test('G3 leases of one session that end at different times each end at their own, without being looked at', async () => {
  const { client, clock } = setUp()
  const leases = []
  for (const maxHoldMs of [1_000, 2_000, 2_500])
    leases.push(await client.acquire(`${maxHoldMs}`, { ttlMs, maxHoldMs }))
  const signals = leases.map(({ signal }) => signal)
  const aborted = () => signals.filter((signal) => signal.aborted).length
  for (const [passesMs, lost] of [
    [999, 0],
    [1, 1],
    [999, 1],
    [1, 2],
    [499, 2],
    [1, 3],
  ] as const) {
    await clock.advance(passesMs)
    expect(aborted()).toBe(lost)
  }
})

test('a lease that is lost in the very moment of its grant is told as acquired, and then as lost', async () => {
  const rig = createRig()
  const gone = Promise.withResolvers<{ readonly kind: 'session-gone' }>()
  const client = rig.locker({
    wrap(backend) {
      const openSession = backend.openSession.bind(backend)
      backend.openSession = async (...asked) => {
        const session = await openSession(...asked)
        const tryAcquire = session.tryAcquire.bind(session)
        session.tryAcquire = (request, call) => {
          if (request.name === 'b') return gone.promise
          const granted = tryAcquire(request, call)
          // Both answers come in one batch of the engine.
          granted.then(() => gone.resolve({ kind: 'session-gone' }))
          return granted
        }
        return session
      }
      return backend
    },
  })
  const told: string[] = []
  const stops = (['acquired', 'lost'] as const).map((kind) =>
    onEvent(kind, ({ name }) => void (name === 'a' && told.push(kind))),
  )
  try {
    const other = expect(client.tryAcquire('b')).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    const lease = await client.tryAcquire('a')
    expect(lease?.state).toBe('lost')
    expect(told).toEqual(['acquired', 'lost'])
    await other
  } finally {
    for (const stop of stops) stop()
  }
})
