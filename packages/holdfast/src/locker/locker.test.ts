import { describe, expect, test } from 'vitest'
import { createRig, eventsDuring, peek, plainCall } from '../../test/rig.ts'
import type { LeaseLostError } from '../base/errors.ts'
import { formatFence, parseFence } from '../base/fence-text.ts'
import { memory } from '../engines/memory/index.ts'
import { listAll } from '../kit/backend-kit.ts'
import type { Backend } from '../spi.ts'
import { enqueued } from '../testing/enqueued.ts'
import { type FaultyBackend, faultyBackend } from '../testing/faulty-backend.ts'
import { createLocker } from './locker.ts'

const ttlMs = 9_000

describe('waiting for a grant', () => {
  test('G8 waiters are served in the order in which they came, each with a higher token', async () => {
    const { locker } = createRig()
    const first = await locker().acquire('a')
    const served: number[] = []
    const tokens = [first.fence.token]
    const waiters = [0, 1, 2, 3].map(async (number) => {
      const lease = await locker().acquire('a')
      served.push(number)
      tokens.push(lease.fence.token)
      await lease.release()
    })
    await first.release()
    await Promise.all(waiters)
    expect(served).toEqual([0, 1, 2, 3])
    expect(tokens).toEqual([...tokens].sort((a, b) => Number(a - b)))
    expect(new Set(tokens).size).toBe(5)
  })

  test('G9 T28 a thousand waiters, one release: exactly one wakes', async () => {
    const { clock, locker } = createRig()
    const holder = await locker().acquire('a', { ttlMs })
    const client = locker()
    const waiting = Array.from({ length: 1_000 }, () => peek(client.acquire('a', { ttlMs })))
    await clock.settle()
    await holder.release()
    await clock.settle()
    expect(waiting.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect(waiting[0]?.status).toBe('fulfilled')
    await client.close()
  })

  test('T26 no wait means one try; a wait budget lasts as long as it says', async () => {
    const { clock, locker } = createRig()
    const holder = await locker().acquire('a')
    const client = locker()
    await expect(client.acquire('a', { waitMs: 0 })).rejects.toMatchObject({
      code: 'ACQUIRE_TIMEOUT',
      retryable: true,
    })
    const waiting = peek(client.acquire('a', { waitMs: 3_000 }))
    await clock.advance(2_999)
    expect(waiting.status).toBe('pending')
    await clock.advance(1)
    expect(waiting).toMatchObject({
      status: 'rejected',
      reason: { code: 'ACQUIRE_TIMEOUT', resource: 'a', waitedMs: 3_000 },
    })
    expect((await locker().inspect('a'))?.waiters).toEqual([])
    await holder.release()
    expect((await locker().inspect('a')) ?? 'nothing').toBe('nothing')
  })

  test('G11 T27 an abort is noticed at once, throws the caller’s own reason, and leaves no position in the queue', async () => {
    const { clock, locker } = createRig()
    await locker().acquire('a', { ttlMs })
    const caller = new AbortController()
    const waiting = peek(
      locker().acquire('a', { ttlMs, signal: caller.signal, waitMs: Number.POSITIVE_INFINITY }),
    )
    await clock.advance(100_000)
    const reason = new Error('the request was cancelled')
    caller.abort(reason)
    await clock.settle()
    expect(waiting.status).toBe('rejected')
    expect(waiting.reason).toBe(reason)
    expect((await locker().inspect('a'))?.waiters).toEqual([])
  })

  test('an aborted signal at the start asks the engine for nothing', async () => {
    const { engine, locker } = createRig()
    const reason = new Error('no')
    await expect(locker().acquire('a', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason)
    expect(await listAll(memory({ engine }), '', plainCall)).toEqual([])
  })

  test('G6 an abort in the very moment of the grant leaves nothing held', async () => {
    const { clock, locker } = createRig()
    for (let turns = 0; turns < 12; turns++) {
      const caller = new AbortController()
      const client = locker()
      const acquiring = peek(client.acquire('a', { signal: caller.signal }))
      for (let turn = 0; turn < turns; turn++) await Promise.resolve()
      caller.abort(new Error('stop'))
      await clock.settle()
      if (acquiring.status === 'fulfilled') await acquiring.value?.release()
      await clock.settle()
      expect(await client.list()).toEqual([])
    }
  })

  test('T17 T18 a waiter whose session died while it was queued starts again in a new one', async () => {
    const { clock, locker } = createRig()
    const holder = await locker().acquire('a', { ttlMs: 60_000 })
    const waiting = peek(locker().acquire('a', { ttlMs: 1_000, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    clock.block(5_000)
    await clock.advance(1)
    await clock.advance(2_000)
    expect(waiting.status).toBe('pending')
    await holder.release()
    await clock.settle()
    expect(waiting.status).toBe('fulfilled')
    expect(waiting.value?.remainingMs).toBeGreaterThan(0)
  })

  test('T7 T65 a handed-over lease counts from the waiter’s last heartbeat, not from the push', async () => {
    const { clock, locker } = createRig()
    const holder = await locker().acquire('a', { ttlMs })
    const waiting = peek(locker().acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.settle()
    clock.block(2_000)
    await holder.release()
    await clock.settle()
    const leftMs = ttlMs - (ttlMs * 0.01 + 2) - 2_000
    expect(waiting.value?.remainingMs).toBeCloseTo(leftMs)
  })

  test('T21 many waiters on one name do not keep another name from being granted', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    await client.acquire('busy', { ttlMs })
    for (let count = 0; count < 500; count++) client.acquire('busy', { ttlMs }).catch(() => {})
    await clock.settle()
    const other = await client.acquire('free', { ttlMs, waitMs: 0 })
    expect(other.state).toBe('held')
    await client.close()
  })

  test('G10 a dead holder and dead waiters delay the first living waiter by one TTL, not more', async () => {
    const { clock, engine, locker } = createRig()
    const backend = memory({ engine, clock })
    const request = { mode: 'exclusive', weight: 2 ** 30, capacity: 2 ** 30, lockDelayMs: 0 } as const
    for (const id of ['holder', 'waiter one', 'waiter two']) {
      const dead = await backend.openSession({ id, ttlMs, holder: id }, plainCall)
      enqueued(dead, { ...request, name: 'a', attempt: `${id}.secret` }, plainCall).catch(() => {})
    }
    const waiting = peek(locker().acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY }))
    await clock.advance(ttlMs + backend.info.expirySlackMs(ttlMs))
    expect(waiting.status).toBe('fulfilled')
  })
})

describe('many at once', () => {
  test('T54 acquireAll takes names in canonical order, and its fences follow it', async () => {
    const { locker } = createRig()
    const set = await locker().acquireAll(['b', 'a', 'ä', 'a/1'])
    expect(set.leases.map(({ name }) => name)).toEqual(['a', 'a/1', 'b', 'ä'])
    expect(set.fences.map(({ name }) => name)).toEqual(['a', 'a/1', 'b', 'ä'])
    expect(set.get('b').state).toBe('held')
    expect(set.remainingMs).toBeGreaterThan(0)
    expect(await set.release()).toEqual(['released', 'released', 'released', 'released'])
  })

  test('T54 acquireAll has one deadline for all, and gives everything back when it fails', async () => {
    const { clock, locker } = createRig()
    await locker().acquire('b', { ttlMs: 60_000 })
    await locker().acquire('c', { ttlMs: 60_000 })
    const client = locker()
    const waiting = peek(client.acquireAll(['c', 'b', 'a'], { waitMs: 2_000, ttlMs }))
    await clock.advance(1_999)
    expect(waiting.status).toBe('pending')
    expect((await client.inspect('a'))?.holders).toHaveLength(1)
    await clock.advance(1)
    expect(waiting).toMatchObject({ status: 'rejected', reason: { code: 'ACQUIRE_TIMEOUT', resource: 'b' } })
    expect(await client.inspect('a')).toBeNull()
  })

  test('T54 what was lost while the rest was awaited is not handed out', async () => {
    const { clock, locker } = createRig()
    const blocker = await locker().acquire('b', { ttlMs: 600_000 })
    const client = locker()
    const waiting = peek(client.acquireAll(['a', 'b'], { waitMs: Number.POSITIVE_INFINITY, ttlMs }))
    await clock.settle()
    expect(await locker().forceRelease('a', { all: true, reason: 'test' })).toBe(1)
    const thief = await locker().acquire('a', { ttlMs })
    await clock.advance(ttlMs)
    await blocker.release()
    await clock.advance(100)
    expect(waiting.status).toBe('pending')
    await thief.release()
    await clock.advance(100)
    expect(waiting.status).toBe('fulfilled')
    expect(waiting.value?.leases.every((lease) => lease.state === 'held')).toBe(true)
  })

  test('the same name twice, or none, is refused', async () => {
    const { locker } = createRig()
    await expect(locker().acquireAll(['a', 'b', 'a'])).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(locker().acquireAll([])).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  test('permits: as many as there are, and clients who disagree are told', async () => {
    const { locker } = createRig()
    const one = await locker().acquirePermits('pool', { capacity: 3, weight: 2 })
    const two = await locker().tryAcquirePermits('pool', { capacity: 3 })
    expect(two?.weight).toBe(1)
    expect(await locker().tryAcquirePermits('pool', { capacity: 3 })).toBeNull()
    await expect(locker().tryAcquirePermits('pool', { capacity: 4 })).rejects.toMatchObject({
      code: 'CAPACITY_MISMATCH',
    })
    await expect(locker().tryAcquire('pool')).rejects.toMatchObject({ code: 'CAPACITY_MISMATCH' })
    expect(await locker().resize('pool', 4)).toBe('resized')
    expect(await locker().tryAcquirePermits('pool', { capacity: 4 })).not.toBeNull()
    await one.release()
    expect(one).not.toHaveProperty('fence.token')
  })
})

describe('withLease', () => {
  test('T59 the body gets the lease with its fence and its signal, and its result is returned', async () => {
    const { locker } = createRig()
    const client = locker()
    const result = await client.withLease('a', { ttlMs }, async (lease) => {
      expect(lease.fence.token).toBeGreaterThan(0n)
      expect(lease.signal.aborted).toBe(false)
      return 'done'
    })
    expect(result).toBe('done')
    expect(await client.inspect('a')).toBeNull()
  })

  test('G11 the body’s own error comes through, and the lease is released', async () => {
    const { locker } = createRig()
    const client = locker()
    const failure = new Error('out of paper')
    await expect(client.withLease('a', () => Promise.reject(failure))).rejects.toBe(failure)
    expect(await client.inspect('a')).toBeNull()
  })

  test('a loss during the body rejects with LeaseLostError, which keeps what the body returned or threw', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const returned = client.withLease('a', { ttlMs }, async () => {
      clock.block(ttlMs)
      return 'finished anyway'
    })
    await expect(returned).rejects.toMatchObject({
      code: 'LEASE_LOST',
      body: { status: 'fulfilled', value: 'finished anyway' },
    })
    const failure = new Error('half way')
    const threw = client.withLease('b', { ttlMs }, async () => {
      clock.block(ttlMs)
      throw failure
    })
    await expect(threw).rejects.toMatchObject({
      cause: failure,
      body: { status: 'rejected', reason: failure },
    })
  })

  test.each([
    ['returned', () => 'finished anyway'],
    ['threw', () => Promise.reject(new Error('half way'))],
  ])('a loss whose last renewal failed names that failure, and not the body, which %s', async (_, end) => {
    const { clock, locker } = createRig()
    const wires: FaultyBackend<'fenced'>[] = []
    const client = locker({
      wrap: (backend) => {
        const wire = faultyBackend(backend)
        wires.push(wire)
        return wire
      },
    })
    let known: unknown
    const losing = peek(
      client.withLease('a', { ttlMs }, async (lease) => {
        wires[0]?.cutOff()
        await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
        known = lease.signal.reason
        return end()
      }),
    )
    await clock.advance(2 * ttlMs)
    const { reason } = losing as { readonly reason: LeaseLostError }
    expect(reason).toMatchObject({ code: 'LEASE_LOST', reason: 'unreachable' })
    expect(reason.message).toBe((known as LeaseLostError).message)
    expect(reason.message.match(/The last renewal failed: /g)).toHaveLength(1)
    expect(reason.cause).toBe((known as LeaseLostError).cause)
    expect(reason.cause).toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    expect(reason.leaseId).toBe((known as LeaseLostError).leaseId)
    wires[0]?.restore()
    await client.close()
  })
})

describe('operating', () => {
  test('T34 T74 a forced release is noticed at the next keep-alive, with its reason', async () => {
    const { clock, locker } = createRig()
    const lease = await locker({ holder: 'worker 7' }).acquire('a', { ttlMs })
    const operator = locker()
    expect(await operator.forceRelease('a', { holder: 'worker 8', reason: 'stuck' })).toBe(0)
    expect(await operator.forceRelease('a', { token: lease.fence.token + 1n, reason: 'stuck' })).toBe(0)
    expect(await operator.forceRelease('a', { holder: 'worker 7', reason: 'stuck' })).toBe(1)
    expect(lease.state).toBe('held')
    await clock.advance(ttlMs / 2)
    expect(lease.state).toBe('lost')
    expect((lease.signal.reason as LeaseLostError).reason).toBe('force-released')
    await expect(operator.forceRelease('a', { reason: 'x' } as never)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
  })

  test('the engine saying that another has it, while our clock says ours, is reported as such', async () => {
    const { clock, locker } = createRig()
    const lyingEngine = (backend: Backend<'fenced'>): Backend<'fenced'> => ({
      ...backend,
      openSession: async (request, call) => {
        const session = await backend.openSession(request, call)
        session.keepAlive = async ({ held }) => {
          const lost = held.map(({ attempt }) => ({ attempt, reason: 'taken-over' as const }))
          return { kind: 'alive', since: session.since, ttlMs, lost, granted: [], unlisted: [] }
        }
        return session
      },
    })
    const lease = await locker({ wrap: lyingEngine }).acquire('a', { ttlMs })
    const events = await eventsDuring('dual-owner-suspected', () => clock.advance(ttlMs / 2))
    expect(events).toMatchObject([{ name: 'a', id: lease.id, reason: 'taken-over' }])
    expect(lease.state).toBe('lost')
  })

  test('check is true for the current holder’s fence and for no other', async () => {
    const { locker } = createRig()
    const client = locker()
    const lease = await client.acquire('a')
    const text = formatFence(lease.fence)
    expect(await client.check(parseFence(text))).toBe(true)
    await lease.release()
    expect(await client.check(lease.fence)).toBe(false)
    const foreign = await createLocker(memory()).acquire('a')
    await expect(client.check(foreign.fence)).rejects.toMatchObject({ code: 'FENCE_FOREIGN' })
    await expect(client.check({ ...lease.fence })).rejects.toMatchObject({ code: 'FENCE_INVALID' })
  })

  test('a raised epoch makes every token higher, in fences, lists and force releases alike', async () => {
    const { clock, engine } = createRig()
    const before = createLocker(memory({ engine, clock, issuer: 'orders' }))
    const old = await before.acquire('a')
    await old.release()
    const after = createLocker(memory({ engine, clock, issuer: 'orders', epoch: 3 }))
    const lease = await after.acquire('a')
    expect(lease.fence.token).toBe((3n << 52n) + old.fence.token + 1n)
    expect((await after.inspect('a'))?.holders[0]?.token).toBe(lease.fence.token)
    expect(await after.check(lease.fence)).toBe(true)
    expect(await after.check(old.fence)).toBe(false)
    expect(await after.forceRelease('a', { token: old.fence.token, reason: 'x' })).toBe(0)
    expect(await after.forceRelease('a', { token: lease.fence.token, reason: 'x' })).toBe(1)
  })

  test('watch tells what happens, and ends when it is aborted', async () => {
    const { clock, locker } = createRig()
    const stop = new AbortController()
    const seen: string[] = []
    const watching = (async () => {
      for await (const event of locker().watch('jobs/', { signal: stop.signal }))
        seen.push('name' in event ? `${event.kind} ${event.name}` : event.kind)
    })()
    await clock.settle()
    const lease = await locker().acquire('jobs/1')
    await locker().acquire('other')
    await lease.release()
    await clock.settle()
    stop.abort()
    await watching
    expect(seen).toEqual(['acquired jobs/1', 'released jobs/1'])
  })
})

describe('closing', () => {
  test('T53 close tells holders to stop, waits for the bodies, and only then releases', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const other = locker()
    const order: string[] = []
    const body = Promise.withResolvers<void>()
    const running = client.withLease('a', { ttlMs }, async (lease) => {
      lease.signal.addEventListener('abort', () => order.push('told to stop'))
      await body.promise
      order.push('stopped')
    })
    const outcome = peek(running)
    await clock.settle()
    const waiting = other
      .acquire('a', { ttlMs, waitMs: Number.POSITIVE_INFINITY })
      .then(() => order.push('handed over'))
    const closing = client.close({ graceMs: 60_000 })
    // Longer than the TTL: the claim is renewed until the body has stopped.
    await clock.advance(ttlMs * 3)
    expect(order).toEqual(['told to stop'])
    body.resolve()
    await closing
    await waiting
    expect(order).toEqual(['told to stop', 'stopped', 'handed over'])
    expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'LEASE_LOST', reason: 'closed' } })
  })

  test('close ends pending acquires, refuses new ones, and gives up bodies that do not stop', async () => {
    const { clock, locker } = createRig()
    const blocker = await locker().acquire('a', { ttlMs: 60_000 })
    const client = locker()
    const pending = peek(client.acquire('a', { ttlMs }))
    const endless = client.withLease('b', { ttlMs }, () => new Promise(() => {}))
    endless.catch(() => {})
    await clock.settle()
    const closing = peek(client.close({ graceMs: 2_000 }))
    await clock.advance(1_999)
    expect(pending).toMatchObject({ status: 'rejected', reason: { code: 'CLOSED' } })
    expect(closing.status).toBe('pending')
    await clock.advance(1)
    expect(closing.status).toBe('fulfilled')
    await expect(client.acquire('c')).rejects.toMatchObject({ code: 'CLOSED' })
    expect(await locker().list()).toMatchObject([{ name: 'a', waiters: [] }])
    expect(blocker.state).toBe('held')
  })

  test('await using releases', async () => {
    const { locker } = createRig()
    const client = locker()
    {
      await using lease = await client.acquire('a')
      expect(lease.state).toBe('held')
    }
    expect(await client.inspect('a')).toBeNull()
  })
})

test('nothing that is not a backend becomes a locker', () => {
  expect(() => createLocker({} as never)).toThrow(/must be a backend/)
  expect(() => createLocker(Promise.resolve({}) as never)).toThrow(/an `await` is missing/)
  expect(() => createLocker(memory(), { ttl: 5 } as never)).toThrow(/no option "ttl"/)
})

test('the system’s own clock serves as well as the fake one', async () => {
  const client = createLocker(memory())
  const lease = await client.acquire('a')
  await lease.renew()
  expect(lease.remainingMs).toBeGreaterThan(0)
  expect(await lease.release()).toBe('released')
  await client.close()
})
