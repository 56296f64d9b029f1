import { describe, expect, test } from 'vitest'
import { createRig, eventsDuring, peek } from '../../test/rig.ts'
import { instantOf } from '../base/clock.ts'
import { BackendUnavailableError, type LeaseLostError } from '../base/errors.ts'
import { closeSession } from '../kit/rules.ts'
import type { Backend, BackendSession } from '../spi.ts'
import { enqueued } from '../testing/enqueued.ts'
import { type FaultyBackend, faultyBackend } from '../testing/faulty-backend.ts'
import type { LockerOptions } from './locker.ts'

const ttlMs = 9_000
const driftMs = ttlMs * 0.01 + 2
const intervalMs = ttlMs / 3
/** Longer than any jittered renewal interval, shorter than two. */
const oneIntervalMs = intervalMs * 1.1 + 1

const sessions = new WeakMap<object, BackendSession<'fenced'>[]>()

/** The sessions that a locker has opened through this backend. */
function openedBy(backend: object): BackendSession<'fenced'>[] {
  return sessions.get(backend) ?? []
}

function createFaultyRig() {
  const rig = createRig()
  return {
    ...rig,
    faulty(options: LockerOptions = {}) {
      let faults: FaultyBackend<'fenced'> | undefined
      const wrap = (backend: Backend<'fenced'>) => {
        const wire = faultyBackend(backend)
        faults = wire
        const openSession = wire.openSession.bind(wire)
        wire.openSession = async (request, call) => {
          const session = await openSession(request, call)
          sessions.set(wire, [...openedBy(wire), session])
          return session
        }
        return wire
      }
      const client = rig.locker({ ...options, wrap })
      if (faults === undefined) throw new Error('the rig did not wrap the backend')
      return { client, faults }
    },
  }
}

describe('keep-alives', () => {
  test('G3 T1 an answer that comes late counts from when its request was sent', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const lease = await client.acquire('a', { ttlMs })
    faults.next('keepAlive', { kind: 'late-reply', ms: 1_500 })
    const sent = Promise.withResolvers<number>()
    const poll = async () => {
      while (faults.count('keepAlive') === 0) await clock.advance(10)
      sent.resolve(clock.monotonicMs())
    }
    await poll()
    const sentMs = await sent.promise
    await clock.advance(1_500)
    expect(lease.remainingMs).toBeLessThanOrEqual(ttlMs - driftMs - (clock.monotonicMs() - sentMs) + 10)
    expect(lease.state).toBe('held')
  })

  test('T1 a keep-alive confirms what it listed when it was sent, and nothing else', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const listed = await client.acquire('a', { ttlMs })
    clock.block(1_000)
    faults.next('keepAlive', { kind: 'late-reply', ms: 500 })
    const renewing = listed.renew()
    const later = await client.acquire('b', { ttlMs })
    await clock.advance(500)
    await renewing
    expect(listed.remainingMs).toBeCloseTo(ttlMs - driftMs - 500)
    expect(later.remainingMs).toBeLessThanOrEqual(ttlMs - driftMs - 500)
    expect(faults.count('keepAlive')).toBe(1)
  })

  test('one keep-alive an interval serves a thousand leases', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const leases = await Promise.all(
      Array.from({ length: 1_000 }, (_, number) => client.acquire(`job/${number}`, { ttlMs })),
    )
    const before = faults.count('keepAlive')
    await clock.advance(intervalMs * 10)
    const sent = faults.count('keepAlive') - before
    expect(sent).toBeGreaterThanOrEqual(8)
    expect(sent).toBeLessThanOrEqual(12)
    expect(leases.every((lease) => lease.state === 'held')).toBe(true)
    expect(faults.count('openSession')).toBe(1)
  })

  test('a keep-alive that fails puts leases in jeopardy, and one that is confirmed takes them out again', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const remaining: number[] = []
    const lease = await client.acquire('a', { ttlMs, onJeopardy: (ms) => remaining.push(ms) })
    faults.next('keepAlive', { kind: 'error-before' })
    const jeopardies = await eventsDuring('jeopardy', async () => {
      while (faults.count('keepAlive') === 0) await clock.advance(10)
    })
    expect(lease.state).toBe('jeopardy')
    expect(jeopardies).toMatchObject([{ name: 'a', id: lease.id }])
    expect(remaining).toHaveLength(1)
    await clock.advance(1_000)
    expect(lease.state).toBe('held')
  })

  test('T12 a renewal that was applied although its reply was lost is not a loss', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const lease = await client.acquire('a', { ttlMs })
    faults.next('keepAlive', { kind: 'error-after' })
    faults.next('keepAlive', { kind: 'lost-reply' })
    await clock.advance(ttlMs * 3)
    expect(lease.state).toBe('held')
  })

  test('T30 a renewal that throws neither ends the loop nor becomes an unhandled rejection', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const unhandled: unknown[] = []
    const listener = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', listener)
    const lease = await client.acquire('a', { ttlMs })
    for (let round = 0; round < 3; round++) {
      faults.next('keepAlive', { kind: 'error-before', error: new TypeError('socket closed') })
      await clock.advance(oneIntervalMs)
    }
    await clock.advance(ttlMs * 5)
    process.off('unhandledRejection', listener)
    expect(lease.state).toBe('held')
    expect(unhandled).toEqual([])
  })

  test('T16 T39 an engine that takes as long as a call may take for every answer costs no lease', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty({ callTimeoutMs: ttlMs })
    const lease = await client.acquire('a', { ttlMs })
    // The limit of a keep-alive is a third of the TTL, and what it confirms counts from when it was sent.
    for (let round = 0; round < 40; round++)
      faults.next('keepAlive', { kind: 'late-reply', ms: intervalMs * 0.98 })
    await clock.advance(ttlMs * 8)
    expect(lease.state).toBe('held')
  })

  test('G3 T2 T16 T33 a frozen engine: the lease is lost at its deadline, not later', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const lease = await client.acquire('a', { ttlMs })
    const acquiredMs = clock.monotonicMs()
    let lostMs: number | undefined
    lease.signal.addEventListener('abort', () => (lostMs = clock.monotonicMs()))
    faults.freeze()
    await clock.advance(ttlMs * 2)
    expect(lostMs).toBeCloseTo(acquiredMs + ttlMs - driftMs)
    expect((lease.signal.reason as LeaseLostError).reason).toBe('unreachable')
  })

  test('T33 a lease that is younger than its session, and lost with it, is told that the engine was not reached', async () => {
    const { clock, locker } = createRig()
    // As with engines where every claim has a time of its own.
    const client = locker({
      wrap(backend) {
        const openSession = backend.openSession.bind(backend)
        backend.openSession = async (request, call) => {
          const session = await openSession(request, call)
          const { enqueue } = session as Required<typeof session>
          session.enqueue = async (asked, attempt) => {
            await clock.advance(10)
            const result = await enqueued({ enqueue: enqueue.bind(session) }, asked, attempt)
            if (result.kind !== 'granted') throw new Error('it is free')
            attempt.answer({ kind: 'granted', grant: { ...result.grant, since: instantOf(clock) } })
          }
          session.keepAlive = async () => {
            throw new BackendUnavailableError('memory', 'nobody answers', 'unknown')
          }
          return session
        }
        return backend
      },
    })
    const lease = await client.acquire('a', { ttlMs })
    await clock.advance(ttlMs * 2)
    expect((lease.signal.reason as LeaseLostError).reason).toBe('unreachable')
  })

  test('G4 T31 an answer that comes after the deadline revives nothing, and the engine’s side is given back', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty()
    const lease = await client.acquire('a', { ttlMs })
    faults.freeze()
    await clock.advance(ttlMs - driftMs)
    expect(lease.state).toBe('lost')
    faults.unfreeze()
    await clock.settle()
    expect(lease.state).toBe('lost')
    await clock.advance(ttlMs + 10)
    expect(await locker().tryAcquire('a')).not.toBeNull()
  })

  test('T34 a session that the engine no longer knows takes its leases with it at the next keep-alive', async () => {
    const { clock, engine, locker } = createRig()
    const opened: string[] = []
    const spying = (backend: Backend<'fenced'>): Backend<'fenced'> => ({
      ...backend,
      openSession: (request, call) => {
        opened.push(request.id)
        return backend.openSession(request, call)
      },
    })
    const lease = await locker({ wrap: spying }).acquire('a', { ttlMs })
    for (const id of opened)
      engine.step((table) => {
        const owner = table.session('default', id)
        if (owner !== undefined) closeSession(table, owner)
      })
    expect(lease.state).toBe('held')
    const events = await eventsDuring('lost', () => clock.advance(oneIntervalMs))
    expect(events).toMatchObject([{ id: lease.id, reason: 'session-gone' }])
    expect(lease.state).toBe('lost')
  })

  test('T29 no renewal outlives the release: a released name stays free', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const lease = await client.acquire('a', { ttlMs })
    faults.next('keepAlive', { kind: 'late-reply', ms: 500 })
    while (faults.count('keepAlive') === 0) await clock.advance(10)
    await lease.release()
    await clock.advance(ttlMs)
    expect(await client.list()).toEqual([])
  })

  test('T32 a short TTL does not make renewal a hot loop, also while the engine fails', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    await client.acquire('a', { ttlMs: 20 })
    for (let count = 0; count < 200; count++) faults.next('keepAlive', { kind: 'error-before' })
    await clock.advance(1_000)
    expect(faults.count('keepAlive')).toBeLessThan(100)
    await expect(client.acquire('b', { ttlMs: 5 })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('a stopped process is reported as paused', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client } = faulty()
    await client.acquire('a', { ttlMs: 60_000 })
    const events = await eventsDuring('paused', async () => {
      clock.block(45_000)
      await clock.advance(1)
    })
    expect(events).toHaveLength(1)
    expect(events[0]?.lateByMs).toBeGreaterThan(10_000)
  })
})

describe('unknown outcomes', () => {
  test('G6 T15 an acquire that timed out at the client and lands later is never held', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty()
    await client.acquire('other', { ttlMs })
    faults.next('tryAcquire', { kind: 'late-landing', ms: 2_000 })
    await expect(client.tryAcquire('a', { ttlMs })).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'unknown',
    })
    await clock.advance(2_001)
    expect(await locker().inspect('a')).toBeNull()
  })

  test('G6 T73 the undo was answered, then the delayed original lands on a session that is still alive', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty()
    const keepsTheSessionAlive = await client.acquire('other', { ttlMs })
    faults.next('enqueue', { kind: 'late-landing', ms: 5_000 })
    const waiting = peek(client.acquire('a', { ttlMs, waitMs: 1_000 }))
    await clock.advance(1_000)
    expect(faults.count('abandon')).toBeGreaterThan(0)
    if (waiting.status === 'fulfilled') await waiting.value?.release()
    await clock.advance(ttlMs * 3)
    expect(keepsTheSessionAlive.state).toBe('held')
    expect(await locker().inspect('a')).toBeNull()
  })

  test('T73 the late twin of a request that was answered is found at the next keep-alive and given back', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty()
    const keepsTheSessionAlive = await client.acquire('other', { ttlMs })
    faults.next('tryAcquire', { kind: 'duplicate', ms: 500 })
    const lease = await client.tryAcquire('a', { ttlMs })
    expect(await lease?.release()).toBe('released')
    await clock.advance(501)
    expect((await locker().inspect('a'))?.holders).toHaveLength(1)
    await clock.advance(oneIntervalMs)
    expect(await locker().inspect('a')).toBeNull()
    expect(keepsTheSessionAlive.state).toBe('held')
  })

  test('a keep-alive does not take an acquire that is in flight for a stray', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    await client.acquire('other', { ttlMs })
    faults.next('tryAcquire', { kind: 'late-reply', ms: 4_000 })
    const trying = peek(client.tryAcquire('a', { ttlMs }))
    await clock.advance(4_001)
    expect(trying.value?.state).toBe('held')
    await clock.advance(ttlMs)
    expect(trying.value?.state).toBe('held')
    expect(faults.count('abandon')).toBe(0)
  })

  test('a push that got lost is made good by the next keep-alive', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const holder = await locker().acquire('a', { ttlMs })
    const { client, faults } = faulty()
    faults.next('enqueue', { kind: 'lost-reply' })
    const waiting = peek(client.acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    await holder.release()
    await clock.advance(oneIntervalMs)
    expect(waiting.status).toBe('fulfilled')
    expect(waiting.value?.state).toBe('held')
  })

  test('a keep-alive that listed a waiter prolongs the lease that the waiter has got meanwhile', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const holder = await locker().acquire('a', { ttlMs })
    const { client, faults } = faulty()
    const waiting = peek(client.acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    faults.next('keepAlive', { kind: 'frozen' })
    while (faults.count('keepAlive') === 0) await clock.advance(10)
    await holder.release()
    await clock.settle()
    const beforeMs = waiting.value?.remainingMs ?? 0
    expect(beforeMs).toBeGreaterThan(0)
    faults.unfreeze()
    await clock.settle()
    expect(waiting.value?.remainingMs).toBeGreaterThan(beforeMs)
  })

  test('while something is unresolved the session takes no new leases, and another one does', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const old = await client.acquire('a', { ttlMs })
    faults.next('tryAcquire', { kind: 'error-after' })
    faults.next('abandon', { kind: 'late-reply', ms: 1_000 })
    await expect(client.tryAcquire('b', { ttlMs })).rejects.toMatchObject({ outcome: 'unknown' })
    await client.acquire('c', { ttlMs })
    expect(faults.count('openSession')).toBe(2)
    await clock.advance(1_001)
    await client.acquire('d', { ttlMs })
    expect(faults.count('openSession')).toBe(2)
    expect(old.state).toBe('held')
  })

  test('G6 unresolved for one TTL: the session is given up, its leases are lost, and nothing stays held', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty()
    const lease = await client.acquire('a', { ttlMs })
    faults.next('tryAcquire', { kind: 'error-after' })
    for (let count = 0; count < 200; count++) faults.next('abandon', { kind: 'error-before' })
    await expect(client.tryAcquire('b', { ttlMs })).rejects.toMatchObject({ outcome: 'unknown' })
    await clock.advance(ttlMs / 2)
    expect(lease.state).toBe('held')
    await clock.advance(ttlMs)
    expect(lease.state).toBe('lost')
    expect((lease.signal.reason as LeaseLostError).reason).toBe('unreachable')
    await clock.advance(ttlMs)
    expect(await locker().list()).toEqual([])
  })

  test('G11 T13 a release whose reply is lost says unknown, can be repeated, and is finished in the background', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty()
    const lease = await client.acquire('a', { ttlMs })
    faults.next('release', { kind: 'error-after' })
    const failures = await eventsDuring('release-failed', async () =>
      expect(await lease.release()).toBe('unknown'),
    )
    expect(failures).toMatchObject([{ name: 'a' }])
    // The engine answers now, but not whether the first call had ended the hold. There is no more to learn after that.
    expect(await lease.release()).toBe('unknown')
    expect(await lease.release()).toBe('not-held')
    const again = await client.acquire('b', { ttlMs })
    faults.next('release', { kind: 'error-before' })
    expect(await again.release()).toBe('unknown')
    await clock.advance(100)
    expect(await locker().list()).toEqual([])
  })

  test('G11 T13 a release whose request got lost is made by the second call, which says so', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty({ callTimeoutMs: 500 })
    const lease = await client.acquire('a', { ttlMs })
    faults.next('release', { kind: 'lost-request' })
    // The cleanup in the background does not get through either.
    for (let i = 0; i < 20; i++) faults.next('abandon', { kind: 'error-before' })
    const first = peek(lease.release())
    await clock.advance(501)
    expect(first.value).toBe('unknown')
    expect((await locker().inspect('a'))?.holders).toHaveLength(1)
    expect(await lease.release()).toBe('released')
    expect(await locker().inspect('a')).toBeNull()
    expect(await lease.release()).toBe('not-held')
  })

  test('T14 cleanup does not use the caller’s cancelled signal', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty()
    const caller = new AbortController()
    const lease = await client.acquire('a', { ttlMs, signal: caller.signal })
    caller.abort()
    expect(lease.state).toBe('held')
    expect(await lease.release({ signal: caller.signal })).toBe('unknown')
    await clock.settle()
    expect(await locker().inspect('a')).toBeNull()
    faults.next('enqueue', { kind: 'late-reply', ms: 1_000 })
    const late = new AbortController()
    const acquiring = peek(client.acquire('b', { ttlMs, signal: late.signal }))
    await clock.advance(10)
    late.abort(new Error('gone'))
    await clock.advance(10)
    expect(acquiring.status).toBe('rejected')
    expect(await locker().inspect('b')).toBeNull()
  })

  test('G11 T47 a failed release replaces neither the result nor the error of the body', async () => {
    const { faulty } = createFaultyRig()
    const { client, faults } = faulty()
    faults.next('release', { kind: 'error-before' })
    expect(await client.withLease('a', { ttlMs }, () => 'the result')).toBe('the result')
    faults.next('release', { kind: 'error-after' })
    const failure = new Error('the error')
    await expect(client.withLease('b', { ttlMs }, () => Promise.reject(failure))).rejects.toBe(failure)
  })
})

describe('acquiring from an engine that is not well', () => {
  test('G11 the first contact fails at once, with what happened', async () => {
    const { faulty } = createFaultyRig()
    const { client, faults } = faulty()
    faults.next('openSession', { kind: 'error-before', error: new Error('connect ECONNREFUSED') })
    await expect(client.acquire('a')).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', retryable: true })
    expect((await client.acquire('a')).state).toBe('held')
  })

  test('T87 after an outage longer than the TTL a waiting call retries with backoff, and is served when the engine is back', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const lease = await client.acquire('a', { ttlMs })
    faults.cutOff()
    await clock.advance(2 * ttlMs)
    expect(lease.state).toBe('lost')
    const before = faults.count()
    const waiting = peek(client.acquire('b', { ttlMs, waitMs: 60_000 }))
    await clock.advance(10_000)
    expect(waiting.status).toBe('pending')
    expect(faults.count() - before).toBeLessThan(60)
    faults.restore()
    await clock.advance(5_000)
    expect(waiting.status).toBe('fulfilled')
  })

  test('T87 when the engine stays away, the call fails at the end of its wait, and says how long that was', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    await client.acquire('a', { ttlMs })
    faults.freeze()
    await clock.advance(2 * ttlMs)
    const waiting = peek(client.acquire('b', { ttlMs, waitMs: 2_000 }))
    await clock.advance(1_999)
    expect(waiting.status).toBe('pending')
    await clock.advance(1)
    expect(waiting.reason).toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining('no answer within 2000 ms'),
    })
  })

  test('a further session that cannot be opened is tried again until the wait is over', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    await (await client.acquire('other', { ttlMs })).release()
    const refused = new Error('too many connections')
    faults.next('openSession', { kind: 'error-before', error: refused })
    const acquiring = peek(client.acquire('a', { ttlMs: 2 * ttlMs, waitMs: 5_000 }))
    await clock.advance(100)
    expect(acquiring).toMatchObject({ status: 'fulfilled', value: { state: 'held' } })
    for (let count = 0; count < 500; count++)
      faults.next('openSession', { kind: 'error-before', error: refused })
    const failing = peek(client.acquire('b', { ttlMs: 3 * ttlMs, waitMs: 5_000 }))
    await clock.advance(4_990)
    expect(failing.status).toBe('pending')
    await clock.advance(20)
    expect(failing).toMatchObject({ status: 'rejected', reason: { code: 'BACKEND_UNAVAILABLE' } })
    expect(String((failing as { reason?: unknown }).reason)).toMatch(/too many connections/)
    await expect(client.acquire('b', { ttlMs: 3 * ttlMs, waitMs: 0 })).rejects.toThrow(/too many connections/)
  })

  test('a failure after that is tried again until the wait is over, and is then what is reported', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    await client.acquire('other', { ttlMs })
    faults.next('enqueue', { kind: 'error-before' })
    faults.next('enqueue', { kind: 'error-after' })
    const acquiring = peek(client.acquire('a', { ttlMs, waitMs: 5_000 }))
    await clock.advance(1_000)
    expect(acquiring.status).toBe('fulfilled')
    for (let count = 0; count < 500; count++) faults.next('enqueue', { kind: 'error-before' })
    const failing = peek(client.acquire('b', { ttlMs, waitMs: 5_000 }))
    await clock.advance(5_000)
    expect(failing).toMatchObject({ status: 'rejected', reason: { code: 'BACKEND_UNAVAILABLE' } })
  })

  test('G11 a wait that no engine answered says so, and not that the name was taken', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    await client.acquire('other', { ttlMs })
    faults.freeze()
    const unanswered = peek(client.acquire('a', { ttlMs, waitMs: 500 }))
    await clock.advance(500)
    expect(unanswered.reason).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
  })

  test('T6 a grant that arrives after its own time is not handed out', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty({ callTimeoutMs: 60_000 })
    faults.next('tryAcquire', { kind: 'late-reply', ms: 100 })
    const trying = peek(client.tryAcquire('a', { ttlMs }))
    await clock.settle()
    expect(faults.count('tryAcquire')).toBe(1)
    clock.block(ttlMs)
    await clock.advance(200)
    // The first grant was dead on arrival; what is handed out is a second one, from a session of its own.
    expect(faults.count('tryAcquire')).toBe(2)
    expect(faults.count('openSession')).toBe(2)
    expect(trying.value?.remainingMs).toBeGreaterThan(ttlMs / 2)
  })

  test('T6 T17 a grant whose own time is over is given back, also while its session lives', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    const alive = await client.acquire('other', { ttlMs })
    // As an engine would answer that counts each claim on its own, and whose first answer took longer than the TTL.
    let answers = 0
    const [session] = openedBy(faults)
    const { tryAcquire } = session as BackendSession<'fenced'>
    Object.assign(session as object, {
      tryAcquire: async (...given: Parameters<typeof tryAcquire>) => {
        const result = await tryAcquire.apply(session, given)
        if (result.kind !== 'granted' || answers++ > 0) return result
        const since = { monotonicMs: clock.monotonicMs() - ttlMs, wallMs: clock.wallMs() - ttlMs }
        return { ...result, grant: { ...result.grant, since } }
      },
    })
    const lease = await client.tryAcquire('a', { ttlMs })
    // The dead grant is abandoned, and the next one, of this session or of another, is a good one.
    expect(faults.count('abandon')).toBe(1)
    expect(lease?.remainingMs ?? ttlMs).toBeGreaterThan(ttlMs / 2)
    expect(alive.state).toBe('held')
  })

  test('a grant on a session whose last heartbeat is old is confirmed before it is handed out', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    await client.acquire('other', { ttlMs })
    clock.block(ttlMs * 0.8)
    const lease = await client.tryAcquire('a', { ttlMs })
    expect(faults.count('keepAlive')).toBe(1)
    expect(lease?.remainingMs).toBeGreaterThan(ttlMs / 2)
  })

  test('T4 the TTL that was granted is believed, not the one that was asked for', async () => {
    const { clock, locker } = createRig()
    const stingy = (backend: Backend<'fenced'>): Backend<'fenced'> => ({
      ...backend,
      openSession: (request, call) => backend.openSession({ ...request, ttlMs: request.ttlMs / 2 }, call),
    })
    const lease = await locker({ wrap: stingy }).acquire('a', { ttlMs })
    expect(lease.remainingMs).toBeLessThan(ttlMs / 2)
    clock.block(ttlMs / 2)
    expect(lease.state).toBe('lost')
  })

  test('T56 an engine that is down is not a free lock', async () => {
    const { faulty } = createFaultyRig()
    const { client, faults } = faulty()
    faults.cutOff()
    await expect(client.inspect('a')).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    await expect(client.list()).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    await expect(client.tryAcquire('a')).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
  })

  test('close does not hang on an engine that does not answer', async () => {
    const { clock, faulty } = createFaultyRig()
    const { client, faults } = faulty()
    await client.acquire('a', { ttlMs })
    faults.freeze()
    const closing = peek(client.close())
    await clock.advance(ttlMs)
    expect(closing.status).toBe('fulfilled')
  })
})
