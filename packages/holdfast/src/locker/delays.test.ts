/** Promises about time after the end of a lease, when that end was not an orderly one. */
import { describe, expect, test } from 'vitest'
import { createRig, peek } from '../../test/rig.ts'
import type { Backend } from '../spi.ts'
import type { FaultPlan } from '../testing/faults.ts'
import { faultyBackend } from '../testing/faulty-backend.ts'

const ttlMs = 10_000
const deadlineMs = ttlMs - (ttlMs * 0.01 + 2)

function faultsFor(plan: FaultPlan) {
  return (backend: Backend<'fenced'>) => faultyBackend(backend, { plan })
}

describe('lock-delay', () => {
  test.each(['lost-request', 'lost-reply'] as const)(
    'holds when the holder notices the end before the engine does (%s of keep-alives)',
    async (kind) => {
      const { clock, locker } = createRig()
      const ada = locker({ wrap: faultsFor((call) => (call.kind === 'keepAlive' ? { kind } : null)) })
      const lease = await ada.acquire('x', { ttlMs, lockDelayMs: 60_000 })
      await clock.advance(deadlineMs + 1)
      expect(lease.state).toBe('lost')
      expect(await locker().tryAcquire('x')).toBeNull()
    },
  )

  test('holds after a pause of more than the deadline and less than the TTL', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('x', { ttlMs, lockDelayMs: 60_000 })
    clock.block(deadlineMs + 50)
    await clock.advance(1)
    expect(lease.state).toBe('lost')
    expect(await locker().tryAcquire('x')).toBeNull()
  })

  test('holds after maxHoldMs, too', async () => {
    const { clock, locker } = createRig()
    await locker().acquire('x', { ttlMs, lockDelayMs: 60_000, maxHoldMs: 1_000 })
    await clock.advance(1_001)
    expect(await locker().tryAcquire('x')).toBeNull()
    await clock.advance(60_000)
    expect(await locker().tryAcquire('x')).not.toBeNull()
  })
})

describe('hold-at-least', () => {
  test.each(['lost-request', 'error-before'] as const)(
    'survives a release that failed (%s)',
    async (kind) => {
      const { clock, locker } = createRig()
      let releases = 0
      const once: FaultPlan = (call) => (call.kind === 'release' && releases++ === 0 ? { kind } : null)
      const lease = await locker({ wrap: faultsFor(once) }).acquire('cron', { ttlMs, holdAtLeastMs: 60_000 })
      const outcome = lease.release()
      await clock.advance(5_001)
      expect(await outcome).toBe('unknown')
      expect(await locker().tryAcquire('cron')).toBeNull()
      await clock.advance(60_000)
      expect(await locker().tryAcquire('cron')).not.toBeNull()
    },
  )

  test('survives the closing of the locker', async () => {
    const { clock, locker } = createRig()
    const ada = locker()
    const stop = Promise.withResolvers<void>()
    const job = peek(ada.withLease('cron', { ttlMs, holdAtLeastMs: 60_000 }, () => stop.promise))
    await clock.settle()
    const closing = ada.close()
    stop.resolve()
    await closing
    expect(job.status).toBe('rejected')
    expect(await locker().tryAcquire('cron')).toBeNull()
  })

  test('T23 survives a lease that a step of the wall clock ends early', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('cron', { ttlMs, maxHoldMs: 1_000, holdAtLeastMs: 1_000 })
    await clock.advance(200)
    clock.stepWall(900)
    expect(lease.state).toBe('lost')
    await clock.advance(700)
    expect(await locker().tryAcquire('cron')).toBeNull()
    await clock.advance(200)
    expect(await locker().tryAcquire('cron')).not.toBeNull()
  })

  test('T23 survives a session that ends before the engine would end it', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('cron', { ttlMs, holdAtLeastMs: ttlMs - 10 })
    clock.block(deadlineMs + 50)
    await clock.advance(1)
    expect(lease.state).toBe('lost')
    expect(await locker().tryAcquire('cron')).toBeNull()
  })

  test('G6 closes nothing that was never handed out: a set that could not be had', async () => {
    const { clock, locker } = createRig()
    await locker().acquire('b')
    const all = peek(locker().acquireAll(['a', 'b'], { waitMs: 100, holdAtLeastMs: 3_600_000 }))
    await clock.advance(101)
    expect(all.status).toBe('rejected')
    expect(await locker().tryAcquire('a')).not.toBeNull()
  })

  test('G6 closes nothing that was never handed out: an abort in the moment of the grant', async () => {
    for (let turns = 0; turns < 40; turns++) {
      const { clock, engine, locker } = createRig()
      const blocker = await locker().acquire('a')
      const caller = new AbortController()
      const acquiring = peek(locker().acquire('a', { signal: caller.signal, holdAtLeastMs: 3_600_000 }))
      await clock.settle()
      void blocker.release()
      for (let turn = 0; turn < turns; turn++) await null
      caller.abort()
      await clock.settle()
      if (acquiring.status === 'rejected') expect(engine.inspect('default', 'a')).toBeNull()
    }
  })
})

test('T54 acquireAll keeps its deadline when what it gets is lost at once, again and again', async () => {
  const { clock, locker } = createRig()
  const slow = faultsFor(({ kind }) => (kind === 'tryAcquire' ? { kind: 'late-reply', ms: 10 } : null))
  const all = peek(locker({ wrap: slow }).acquireAll(['a', 'b'], { waitMs: 0, maxHoldMs: 5 }))
  await clock.advance(1_000)
  expect(all).toMatchObject({ status: 'rejected', reason: { code: 'ACQUIRE_TIMEOUT' } })
})

test('T54 acquireAll that loses what it has gathered pauses before it gathers again, longer each time', async () => {
  const { clock, locker } = createRig()
  let gathered = 0
  let isTroubled = true
  // Whenever the second of two names is asked for for the first time, the session ends, and the first is lost with it.
  const wrap = (backend: Backend<'fenced'>) => {
    let isFirst = true
    const openSession = backend.openSession.bind(backend)
    backend.openSession = async (request, call) => {
      const session = await openSession(request, call)
      const enqueue = session.enqueue?.bind(session)
      session.enqueue = async (asked, itsCall) => {
        if (asked.name === 'a') gathered++
        if (asked.name === 'b') isFirst = !isFirst
        if (asked.name === 'b' && !isFirst && isTroubled) await session.close(itsCall)
        return (await enqueue?.(asked, itsCall)) ?? { kind: 'session-gone' }
      }
      return session
    }
    return backend
  }
  const all = peek(locker({ wrap }).acquireAll(['a', 'b'], { waitMs: 20_000 }))
  await clock.advance(10_000)
  expect(all.status).toBe('pending')
  expect(gathered).toBeGreaterThan(5)
  expect(gathered).toBeLessThan(40)
  isTroubled = false
  await clock.advance(2_001)
  expect(all.status).toBe('fulfilled')
})

test('T27 T54 acquireAll notices an abort while it pauses', async () => {
  const { clock, locker } = createRig()
  const slow = faultsFor(({ kind }) => (kind === 'enqueue' ? { kind: 'late-reply', ms: 10 } : null))
  const caller = new AbortController()
  const { signal } = caller
  const waitMs = Number.POSITIVE_INFINITY
  const all = peek(locker({ wrap: slow }).acquireAll(['a', 'b'], { waitMs, signal, maxHoldMs: 5 }))
  // By now it pauses most of the time.
  await clock.advance(10_000)
  caller.abort('enough')
  await clock.settle()
  expect(all).toMatchObject({ status: 'rejected', reason: 'enough' })
})

test('T53 withLease starts no body for a name that a closing locker no longer keeps', async () => {
  for (let turns = 0; turns < 24; turns++) {
    const { clock, locker } = createRig()
    const ada = locker()
    const first = await ada.acquire('x', { ttlMs })
    let begunWith: string | undefined
    const body = (lease: { state: string }) => {
      begunWith = lease.state
    }
    const job = peek(ada.withLease('x', { ttlMs }, body))
    await clock.settle()
    void first.release()
    for (let turn = 0; turn < turns; turn++) await null
    await ada.close()
    await clock.settle()
    expect(job.status).not.toBe('pending')
    expect(begunWith).not.toBe('lost')
  }
})
