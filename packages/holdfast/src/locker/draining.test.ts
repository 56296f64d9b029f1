import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { createRig, peek } from '../../test/rig.ts'
import { onEvent } from '../base/events.ts'
import { memory } from '../engines/memory/index.ts'
import { reentrant } from '../recipes/reentrant.ts'
import { faultyBackend } from '../testing/faulty-backend.ts'
import { createLocker } from './locker.ts'

const draining = { code: 'CLOSED', message: expect.stringMatching(/draining.*another process/) }

describe('close with drainMs', () => {
  test('takes no new leases, lets what is held end by itself, and closes then', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const [lease, busy] = [await client.acquire('a'), await locker().acquire('busy')]
    const ends = Promise.withResolvers<string>()
    const running = peek(client.withLease('b', () => ends.promise))
    const waiting = peek(client.acquire('busy'))
    await clock.settle()
    const closed = peek(client.close({ drainMs: 20_000 }))
    await expect(client.acquire('c')).rejects.toMatchObject(draining)
    await expect(client.tryAcquire('c')).rejects.toMatchObject(draining)
    await expect(client.acquireAll(['c', 'd'])).rejects.toMatchObject(draining)
    const body = vi.fn()
    for (const refused of [
      client.acquirePermits('p', { capacity: 2 }),
      client.tryAcquirePermits('p', { capacity: 2 }),
      client.withLease('c', body),
      client.withLeases(['c', 'd'], body),
    ])
      await expect(refused).rejects.toMatchObject(draining)
    expect(body).not.toHaveBeenCalled()
    await clock.advance(12_000)
    expect(waiting.reason).toMatchObject(draining)
    // Renewed meanwhile, and not told to stop.
    expect([lease.state, lease.signal.aborted, closed.status]).toEqual(['held', false, 'pending'])
    expect((await client.inspect('busy'))?.waiters).toEqual([])
    ends.resolve('done')
    await clock.settle()
    expect([running.value, closed.status]).toEqual(['done', 'pending'])
    await lease.release()
    await clock.settle()
    expect(closed.status).toBe('fulfilled')
    expect(lease.signal.aborted).toBe(false)
    await busy.release()
  })

  test('closes as without it when the time is over', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const lease = await client.acquire('a')
    const closed = peek(client.close({ drainMs: 5_000 }))
    await clock.advance(4_999)
    expect(lease.state).toBe('held')
    await clock.advance(1)
    await clock.settle()
    expect([lease.signal.reason.reason, closed.status]).toEqual(['closed', 'fulfilled'])
    const isClosed = { code: 'CLOSED', message: expect.stringMatching(/is closed/) }
    await expect(client.acquire('b')).rejects.toMatchObject(isClosed)
    await expect(client.tryAcquire('b')).rejects.toMatchObject(isClosed)
    expect(clock.pendingTimers).toBe(0)
  })

  test('T53 close without it ends all leases before it returns', async () => {
    const { locker } = createRig()
    const client = locker()
    const lease = await client.acquire('a')
    const closed = client.close()
    expect(lease.signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'closed' })
    await closed
  })

  test('a listener of a lost lease may close as well: it is one close, so the backend is there until the lease is free', async () => {
    const { clock, engine, locker } = createRig()
    const faulty = faultyBackend(memory({ engine, clock }))
    const client = createLocker(faulty)
    const lease = await client.acquire('a')
    faulty.next('close', { kind: 'frozen' })
    lease.signal.addEventListener('abort', () => void client.close())
    const closed = peek(client.close())
    await clock.advance(500)
    expect(closed.status).toBe('pending')
    faulty.unfreeze()
    await clock.settle()
    expect(closed.status).toBe('fulfilled')
    expect((await locker().tryAcquire('a'))?.state).toBe('held')
  })

  test('is ended by a second close without it', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const lease = await client.acquire('a')
    const first = peek(client.close({ drainMs: 60_000 }))
    await clock.advance(1_000)
    await client.close()
    expect([lease.state, first.status]).toEqual(['lost', 'fulfilled'])
  })

  test('the grace of the later close counts, and 0 ends a grace that has begun', async () => {
    const { clock, locker } = createRig()
    const stubborn = async () => {
      const client = locker()
      client.withLease('a', () => new Promise(() => {})).catch(() => {})
      await clock.settle()
      return client
    }
    const drains = await stubborn()
    const drained = peek(drains.close({ drainMs: 60_000 }))
    await clock.advance(1_000)
    void drains.close({ graceMs: 2_000 })
    await clock.advance(1_999)
    expect(drained.status).toBe('pending')
    await clock.advance(1)
    expect(drained.status).toBe('fulfilled')

    const keeps = await stubborn()
    const kept = peek(keeps.close({ drainMs: 60_000, graceMs: 2_000 }))
    void keeps.close()
    await clock.advance(2_000)
    expect(kept.status).toBe('fulfilled')

    const waits = await stubborn()
    const waited = peek(waits.close({ graceMs: 60_000 }))
    await clock.advance(1_000)
    expect(waited.status).toBe('pending')
    void waits.close({ graceMs: 0 })
    await clock.settle()
    expect([waited.status, clock.pendingTimers]).toEqual(['fulfilled', 0])
  })

  test('of a locker that holds nothing closes at once', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    await (await client.acquire('a')).release()
    const closed = peek(client.close({ drainMs: 60_000 }))
    await clock.settle()
    expect(closed.status).toBe('fulfilled')
  })

  test('refuses what is no time', async () => {
    const client = createRig().locker()
    for (const drainMs of [-1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31, '5' as never])
      await expect(client.close({ drainMs })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    const lease = await client.acquire('a')
    for (const options of [{ nonsense: 1 }, { graceMs: -1 }, { drainMs: 5, graceMs: '5' }])
      await expect(client.close(options as never)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    expect([lease.state, (await client.acquire('b')).state]).toEqual(['held', 'held'])
  })
})

describe('withLeases', () => {
  test('holds all names for the body, in canonical order, and releases them', async () => {
    const { locker } = createRig()
    const client = locker()
    const names = await client.withLeases(['b', 'a'], { mode: 'shared' }, async (leases) => {
      expect(leases.leases.map(({ state }) => state)).toEqual(['held', 'held'])
      return leases.leases.map(({ name }) => name)
    })
    expect(names).toEqual(['a', 'b'])
    expect(await client.list()).toEqual([])
    await expect(client.withLeases(['a'], () => Promise.reject(new Error('own')))).rejects.toThrow('own')
    expect(await client.list()).toEqual([])
  })

  test('G11 a loss of one rejects with it, and keeps what the body did', async () => {
    const { clock, locker } = createRig()
    const [client, operator] = [locker(), locker()]
    const running = peek(
      client.withLeases(['a', 'b'], async ({ signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        return 'stopped'
      }),
    )
    await clock.settle()
    await operator.forceRelease('b', { all: true, reason: 'a test' })
    await clock.advance(6_000)
    expect(running.reason).toMatchObject({
      code: 'LEASE_LOST',
      resource: 'b',
      body: { status: 'fulfilled', value: 'stopped' },
    })
    expect(await operator.list()).toEqual([])
  })

  test('G11 a loss before the body begins is thrown as it is: a body that never ran has no outcome', async () => {
    const { clock, engine, locker } = createRig()
    const client = locker()
    const { acquireAll } = client
    Object.assign(client, {
      acquireAll: async (...given: Parameters<typeof acquireAll>) => {
        const set = await acquireAll(...given)
        engine.deleteName('default', 'b')
        await clock.advance(6_000)
        return set
      },
    })
    const body = vi.fn()
    const lost = await client.withLeases(['a', 'b'], body).catch((error) => error)
    expect(lost).toMatchObject({ code: 'LEASE_LOST', resource: 'b', reason: 'deleted' })
    expect([lost.body, await locker().list()]).toEqual([undefined, []])
    onTestFinished(onEvent('acquired', () => clock.block(60_000)))
    const alone = await client.withLease('c', body).catch((error) => error)
    expect(alone).toMatchObject({ code: 'LEASE_LOST', resource: 'c' })
    expect([alone.body, body.mock.calls, await locker().list()]).toEqual([undefined, [], []])
  })

  test('T53 closing waits for the body, also through a wrapper', async () => {
    const { clock, locker } = createRig()
    for (const wrap of [(client: ReturnType<typeof locker>) => client, reentrant]) {
      const client = wrap(locker())
      const body = Promise.withResolvers<void>()
      const running = peek(client.withLeases(['a', 'b'], () => body.promise))
      await clock.settle()
      const closing = peek(client.close({ graceMs: 60_000 }))
      await clock.advance(5_000)
      expect([closing.status, (await locker().tryAcquire('a')) === null]).toEqual(['pending', true])
      body.resolve()
      await clock.settle()
      expect([closing.status, running.reason]).toMatchObject(['fulfilled', { reason: 'closed' }])
    }
  })

  test('refuses bad arguments before it asks for anything', async () => {
    const client = createRig().locker()
    const body = () => undefined
    for (const call of [
      () => client.withLeases([], body),
      () => client.withLeases(['a', 'a'], body),
      () => client.withLeases('a' as never, body),
      () => client.withLeases(['a'], {} as never),
      () => client.withLeases(['a'], { nonsense: 1 } as never, body),
    ])
      await expect(call()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    expect(await client.list()).toEqual([])
  })
})

describe('JSON of a lease', () => {
  test('is useful in a log and has no secret', async () => {
    const { clock, locker, engine } = createRig()
    const client = locker({ holder: 'api' })
    const lease = await client.acquire('sku:42', { ttlMs: 9_000 })
    const { remainingMs, ...others } = JSON.parse(JSON.stringify(lease))
    const about = { id: lease.id, name: 'sku:42', holder: 'api' }
    expect(others).toEqual({ ...about, state: 'held', token: String(lease.fence.token) })
    expect(remainingMs).toBeGreaterThan(8_000)
    engine.deleteName('default', 'sku:42')
    await clock.advance(9_000)
    const lost = { ...others, state: 'lost', remainingMs: 0 }
    expect(JSON.parse(JSON.stringify({ lease }))).toEqual({ lease: lost })
  })

  test('of a permit is alike, and on an engine without tokens the token is null', async () => {
    const { locker } = createRig()
    const client = locker()
    const permit = await client.acquirePermits('p', { capacity: 2 })
    const unfenced = locker({
      wrap(backend) {
        const openSession = backend.openSession.bind(backend)
        return Object.assign(backend, {
          async openSession(...given: Parameters<typeof openSession>) {
            const session = await openSession(...given)
            const { tryAcquire } = session
            session.tryAcquire = async (...asked) => {
              const result = await tryAcquire.apply(session, asked)
              return result.kind === 'granted'
                ? { ...result, grant: { ...result.grant, token: null as never } }
                : result
            }
            return session
          },
        })
      },
    })
    const lease = await unfenced.tryAcquire('n')
    expect(lease?.fencing).toBe('unfenced')
    for (const [held, token] of [
      [permit, '1'],
      [lease, null],
    ] as const) {
      const { id, name, holder } = held as typeof permit
      const told = { id, name, holder, state: 'held', remainingMs: expect.any(Number), token }
      expect(JSON.parse(JSON.stringify(held))).toEqual(told)
    }
  })

  test('of a lease that was entered again says what that one is', async () => {
    const client = reentrant(createRig().locker())
    await client.withLease('n', async (outer) => {
      const inner = await client.acquire('n')
      await inner.release()
      const { state, remainingMs, ...others } = JSON.parse(JSON.stringify(inner))
      expect([state, remainingMs]).toEqual(['released', 0])
      expect(JSON.parse(JSON.stringify(outer))).toMatchObject({ ...others, state: 'held' })
    })
  })
})
