import { describe, expect, test } from 'vitest'
import { createRig, peek } from '../../test/rig.ts'
import { reentrant } from '../recipes/reentrant.ts'

const draining = { code: 'CLOSED', message: expect.stringMatching(/draining.*another process/) }

describe('close with drainMs', () => {
  test('takes no new leases, lets what is held end by itself, and closes then', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const [lease, busy] = [await client.acquire('a'), await locker().acquire('busy')]
    const body = Promise.withResolvers<string>()
    const running = peek(client.withLease('b', () => body.promise))
    const waiting = peek(client.acquire('busy'))
    await clock.settle()
    const closed = peek(client.close({ drainMs: 20_000 }))
    await expect(client.acquire('c')).rejects.toMatchObject(draining)
    await expect(client.tryAcquire('c')).rejects.toMatchObject(draining)
    await expect(client.acquireAll(['c', 'd'])).rejects.toMatchObject(draining)
    await clock.advance(12_000)
    expect(waiting.reason).toMatchObject(draining)
    // Renewed meanwhile, and not told to stop.
    expect([lease.state, lease.signal.aborted, closed.status]).toEqual(['held', false, 'pending'])
    expect((await client.inspect('busy'))?.waiters).toEqual([])
    body.resolve('done')
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

  test('is ended by a second close without it', async () => {
    const { clock, locker } = createRig()
    const client = locker()
    const lease = await client.acquire('a')
    const first = peek(client.close({ drainMs: 60_000 }))
    await clock.advance(1_000)
    await client.close()
    expect([lease.state, first.status]).toEqual(['lost', 'fulfilled'])
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
    expect((await client.acquire('a')).state).toBe('held')
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
  })
})

test('a lease as JSON is useful in a log and has no secret', async () => {
  const { locker } = createRig()
  const lease = await locker({ holder: 'api' }).acquire('sku:42', { ttlMs: 9_000 })
  const text = JSON.stringify(lease)
  const { remainingMs, ...others } = JSON.parse(text)
  expect(others).toEqual({
    id: lease.id,
    name: 'sku:42',
    holder: 'api',
    state: 'held',
    token: String(lease.fence.token),
  })
  expect(remainingMs).toBeGreaterThan(8_000)
})
