import { describe, expect, test } from 'vitest'
import { collect, createRig, eventsDuring, peek } from '../../test/rig.ts'
import { LeaseLostError } from '../base/errors.ts'
import type { Lease } from '../base/types.ts'
import type { FaultPlan } from '../testing/faults.ts'
import { faultyBackend } from '../testing/faulty-backend.ts'

const ttlMs = 9_000
const driftMs = ttlMs * 0.01 + 2
const slowKeepAlives: FaultPlan = ({ kind }) =>
  kind === 'keepAlive' ? { kind: 'late-reply', ms: 900 } : null

describe('belief', () => {
  test('G3 belief ends at since + TTL − drift, and the signal aborts in that very moment', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('sku:42', { ttlMs })
    const { signal } = lease
    let abortedAtMs: number | undefined
    signal.addEventListener('abort', () => (abortedAtMs = clock.monotonicMs()))
    const startMs = clock.monotonicMs()
    clock.block(ttlMs - driftMs - 1)
    expect(lease.state).toBe('held')
    expect(lease.remainingMs).toBeCloseTo(1)
    clock.block(1)
    expect(lease.remainingMs).toBe(0)
    expect(lease.state).toBe('lost')
    expect(signal.aborted).toBe(true)
    expect(abortedAtMs).toBeCloseTo(startMs + ttlMs - driftMs)
    expect(signal.reason).toBeInstanceOf(LeaseLostError)
    expect((signal.reason as LeaseLostError).reason).toBe('expired')
    expect((signal.reason as LeaseLostError).message).toContain(`Its TTL was ${ttlMs} ms.`)
  })

  test('G3 T8 a blocked event loop does not prolong belief: the first read after it says lost', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('a', { ttlMs })
    clock.block(60_000)
    expect(lease.signal.aborted).toBe(true)
    expect(lease.remainingMs).toBe(0)
    await expect(lease.ensure(1)).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'expired' })
    await expect(lease.setData('x')).rejects.toMatchObject({ code: 'LEASE_LOST' })
  })

  test('T3 wall clock +1 h: the lease ends early; −1 h: nothing changes', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const early = await client.acquire('a', { ttlMs })
    clock.stepWall(3_600_000)
    expect(early.state).toBe('lost')
    const unmoved = await client.acquire('b', { ttlMs })
    const beforeMs = unmoved.remainingMs
    clock.stepWall(-3_600_000)
    expect(unmoved.remainingMs).toBe(beforeMs)
    clock.block(ttlMs)
    expect(unmoved.state).toBe('lost')
  })

  test('T3 a wait budget is unaffected by the wall clock', async () => {
    const { clock, locker } = createRig()
    await locker().acquire('a')
    const waiting = locker().acquire('a', { waitMs: 5_000 })
    const settled = waiting.then(
      () => 'granted',
      (error: { code: string }) => error.code,
    )
    let outcome: string | undefined
    settled.then((value) => (outcome = value))
    await clock.advance(1_000)
    clock.stepWall(-3_600_000)
    await clock.advance(3_999)
    expect(outcome).toBeUndefined()
    await clock.advance(1)
    expect(outcome).toBe('ACQUIRE_TIMEOUT')
  })

  test('G3 T3 suspend: the monotonic clock stood still, the wall clock moved on, and the lease is over', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('a', { ttlMs })
    clock.suspend(ttlMs)
    expect(lease.state).toBe('lost')
  })

  test('renewals keep a lease alive for as long as they are confirmed', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('a', { ttlMs })
    await clock.advance(ttlMs * 20)
    expect(lease.state).toBe('held')
    expect(lease.remainingMs).toBeGreaterThan(ttlMs / 2)
  })

  test('T64 a lease on an old session ends when the session does, not a TTL after its own acquire', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const first = await client.acquire('a', { ttlMs })
    clock.block(2_000)
    const second = await client.acquire('b', { ttlMs })
    expect(second.remainingMs).toBeCloseTo(first.remainingMs)
  })
})

describe('final states', () => {
  test('G4 nothing revives a lost lease: neither a keep-alive nor a renewal nor time', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const lease = await client.acquire('a', { ttlMs })
    clock.block(ttlMs)
    expect(lease.state).toBe('lost')
    await expect(lease.renew()).rejects.toMatchObject({ code: 'LEASE_LOST' })
    clock.stepWall(-3_600_000)
    await clock.advance(ttlMs)
    expect(lease.state).toBe('lost')
    expect(lease.signal.aborted).toBe(true)
  })

  test('G4 a released lease stays released, and its signal is not aborted', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('a', { ttlMs })
    const { signal } = lease
    expect(await lease.release()).toBe('released')
    await clock.advance(ttlMs * 3)
    expect(lease.state).toBe('released')
    expect(lease.remainingMs).toBe(0)
    expect(signal.aborted).toBe(false)
    await expect(lease.renew()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'released' })
  })

  test('T13 a second release says truthfully that there was nothing to release', async () => {
    const { locker } = createRig()
    const client = locker()
    const lease = await client.acquire('a')
    const [first, atTheSameTime] = await Promise.all([lease.release(), lease.release()])
    expect([first, atTheSameTime]).toEqual(['released', 'released'])
    expect(await lease.release()).toBe('not-held')
  })

  test('G7 T47 the release of an expired lease answers at once and touches no successor', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('a', { ttlMs })
    clock.block(ttlMs)
    const successor = await locker().acquire('a', { ttlMs, waitMs: 0 })
    expect(await lease.release()).toBe('not-held')
    await clock.advance(1_000)
    expect(successor.state).toBe('held')
    expect(await locker().tryAcquire('a')).toBeNull()
  })
})

describe('terms', () => {
  test('maxHoldMs means lost, then released', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('a', { ttlMs, maxHoldMs: 1_000 })
    const { signal } = lease
    await clock.advance(999)
    expect(lease.state).toBe('held')
    await clock.advance(1)
    expect(signal.aborted).toBe(true)
    expect((signal.reason as LeaseLostError).reason).toBe('max-hold')
    expect(await locker().tryAcquire('a')).not.toBeNull()
  })

  test('holdAtLeastMs keeps the name closed after an early release, and a stepped wall clock does not open it', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('a', { ttlMs, holdAtLeastMs: 5_000 })
    await clock.advance(2_000)
    clock.stepWall(1_000)
    expect(await lease.release()).toBe('released')
    expect(await locker().tryAcquire('a')).toBeNull()
    await clock.advance(3_000)
    expect(await locker().tryAcquire('a')).not.toBeNull()
  })

  test('lockDelayMs keeps the name closed after an expiry', async () => {
    const { clock, locker } = createRig()
    await locker().acquire('a', { ttlMs, lockDelayMs: 4_000 })
    clock.block(ttlMs)
    expect(await locker().tryAcquire('a')).toBeNull()
    clock.block(4_000)
    expect(await locker().tryAcquire('a')).not.toBeNull()
  })

  test('ensure renews only when less than that remains, and refuses what no renewal can give', async () => {
    const { clock, locker } = createRig()
    const lease = await locker().acquire('a', { ttlMs })
    clock.block(2_000)
    const renewals = await eventsDuring('renewed', () => lease.ensure(6_000))
    expect(renewals).toHaveLength(0)
    const [renewal] = await eventsDuring('renewed', () => lease.ensure(8_000))
    expect(renewal).toMatchObject({ leases: 1 })
    expect(lease.remainingMs).toBeGreaterThan(8_000)
    await expect(lease.ensure(ttlMs)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('ensure does not promise more than maxHoldMs leaves, nor more than a slow renewal has left', async () => {
    const { clock, locker } = createRig()
    const short = await locker().acquire('a', { ttlMs, maxHoldMs: 400 })
    await expect(short.ensure(401)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await short.ensure(400)
    const slow = await locker({
      wrap: (backend) => faultyBackend(backend, { plan: slowKeepAlives }),
    }).acquire('b', { ttlMs })
    clock.block(100)
    const ensuring = peek(slow.ensure(ttlMs - driftMs))
    await clock.advance(1_000)
    expect(ensuring).toMatchObject({ status: 'rejected', reason: { code: 'BACKEND_UNAVAILABLE' } })
    expect(slow.state).toBe('held')
  })

  test('data goes from one holder to the next', async () => {
    const { locker } = createRig()
    const first = await locker().acquire('a')
    expect(first.previousData).toBeUndefined()
    await first.setData('run 17')
    await first.release()
    const second = await locker().acquire('a')
    expect(second.previousData).toBe('run 17')
    await expect(second.setData('x'.repeat(4_097))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('T45 T44 every acquisition is an owner of its own, also from one locker', async () => {
    const { locker } = createRig()
    const client = locker()
    const first = await client.acquire('a')
    expect(await client.tryAcquire('a')).toBeNull()
    await first.release()
    const second = await client.acquire('a')
    expect(second.id).not.toBe(first.id)
    expect(await first.release()).toBe('not-held')
    expect(second.state).toBe('held')
    expect(await locker().tryAcquire('a')).toBeNull()
  })
})

describe('dropped leases', () => {
  test('a lease without references is lost, then released, with an event', async () => {
    const { clock, locker } = createRig()
    const client = locker({ dropsLeases: true })
    const takeAndDrop = async () => (await client.acquire('dropped-one', { ttlMs })).signal
    const signal = await takeAndDrop()
    await clock.advance(ttlMs / 2)
    const events = await eventsDuring('dropped', () => collect(() => signal.aborted))
    expect(events.filter((event) => event.name === 'dropped-one')).toHaveLength(1)
    expect((signal.reason as LeaseLostError).reason).toBe('dropped')
    await clock.settle()
    expect(await locker().tryAcquire('dropped-one')).not.toBeNull()
  })

  test('one that is dropped before its first renewal is held until then, and found after it', async () => {
    const { clock, locker } = createRig()
    const client = locker({ dropsLeases: true })
    const takeAndDrop = async () => (await client.acquire('dropped-early', { ttlMs })).signal
    const signal = await takeAndDrop()
    await collect(() => signal.aborted, 5)
    expect(signal.aborted).toBe(false)
    expect(await locker().tryAcquire('dropped-early')).toBeNull()
    const renewals = await eventsDuring('renewed', () => clock.advance(ttlMs / 2))
    expect(renewals.length).toBeGreaterThan(0)
    await collect(() => signal.aborted)
    expect((signal.reason as LeaseLostError).reason).toBe('dropped')
    await clock.settle()
    expect(await locker().tryAcquire('dropped-early')).not.toBeNull()
  })

  test('one that is dropped and never renewed ends by itself', async () => {
    const { clock, locker } = createRig()
    const plan: FaultPlan = ({ kind }) => (kind === 'keepAlive' ? { kind: 'lost-request' } : null)
    const client = locker({ dropsLeases: true, wrap: (backend) => faultyBackend(backend, { plan }) })
    const takeAndDrop = async () => (await client.acquire('never-renewed', { ttlMs })).signal
    const signal = await takeAndDrop()
    await clock.advance(ttlMs)
    expect(signal.aborted).toBe(true)
    expect(await locker().tryAcquire('never-renewed')).not.toBeNull()
  })

  test('one that is over can be collected, also if a listener of its own signal refers to it', async () => {
    const { clock, locker } = createRig()
    const noted: number[] = []
    const takeAndLose = async () => {
      const client = locker({ dropsLeases: true })
      const lease: Lease<'fenced'> = await client.acquire('over', {
        ttlMs,
        onJeopardy: () => noted.push(lease.remainingMs),
      })
      lease.signal.addEventListener('abort', () => noted.push(lease.remainingMs))
      // It is watched from its first renewal on.
      await clock.advance(ttlMs / 2)
      await client.close()
      expect(lease.state).toBe('lost')
      return new WeakRef(lease)
    }
    const reference = await takeAndLose()
    // Asking a reference keeps what it refers to until the end of the turn, so it is asked once, at the end.
    await collect(() => false, 10)
    expect(reference.deref()).toBeUndefined()
  })
})
