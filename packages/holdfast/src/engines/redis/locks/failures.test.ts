/** Servers that freeze, forget, lose connections or data; late requests; databases and prefixes. */
import assert from 'node:assert/strict'
import { startProxy } from 'holdfast-lab/faults'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { libraries } from '../../../../test/redis/clients.ts'
import { Rig, until } from '../../../../test/redis/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { LOCK_CAPACITY } from '../../../spi.ts'

function request(name: string) {
  const attempt = `${systemRandom.id()}.${systemRandom.id()}`
  const exclusive = { mode: 'exclusive', weight: LOCK_CAPACITY, capacity: LOCK_CAPACITY } as const
  return { name, attempt, lockDelayMs: 0, ...exclusive }
}

const call = (signal?: AbortSignal) => callWith(signal)

describe.runIf(wanted('redis'))('when redis fails', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())

  test.each(libraries)(
    'T15 T73 G6 an acquire that lands after it was given up comes to nothing ($name)',
    async (library) => {
      await using proxy = await startProxy(server)
      await using rig = new Rig()
      const url = `redis://${proxy.host}:${proxy.port}`
      const late = await rig.backend(url, { library })
      const id = systemRandom.id() + systemRandom.id()
      const session = await late.openSession({ id, ttlMs: 30_000, holder: 'late' }, call()).then(namingGrants)
      const asked = request('late')
      // Requests of this locker are held back on the way; the caller gives up.
      proxy.hold('up')
      const controller = new AbortController()
      const acquiring = session.tryAcquire(asked, call(controller.signal))
      setTimeout(() => controller.abort(new Error('gave up')), 50)
      await assert.rejects(
        acquiring,
        (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown',
      )
      // Its abandon overtakes it, through another connection of the same session.
      const other = await rig.backend(server.url)
      const attached = await other.attachSession(session.handle, call())
      await attached?.abandon(asked, call())
      proxy.heal()
      await until('the late request has landed', async () => {
        const stats = String(await redisCall(server, 'INFO', 'commandstats'))
        return (
          /cmdstat_evalsha/.test(stats) &&
          (await session.keepAlive({ held: [], waiting: [] }, call())).kind === 'alive'
        )
      })
      assert.equal(await other.inspect('late', call()), null, 'it holds nothing')
      await session.close(call())
    },
  )

  test.each(libraries)(
    'T16 G3 a frozen server: the lease is lost at its deadline all the same ($name)',
    async (library) => {
      await using own = await startRedis()
      await using rig = new Rig()
      const locker = await rig.locker(own.url, { library, locker: { ttlMs: 1_500, callTimeoutMs: 1_000 } })
      const lease = await locker.acquire('x')
      await own.pause()
      await until('it is lost', () => lease.signal.aborted)
      assert(isHoldfastError(lease.signal.reason, 'LEASE_LOST'))
      assert.equal(lease.remainingMs, 0)
      await own.resume()
      await until('a new lease can be had', async () => {
        const next = await locker.tryAcquire('x').catch(() => null)
        await next?.release()
        return next !== null
      })
      assert.equal(lease.state, 'lost', 'G4: nothing revives it')
    },
  )

  test('T34 FLUSHALL is noticed at the next keep-alive, and told as lost', async () => {
    await using own = await startRedis()
    await using rig = new Rig()
    const locker = await rig.locker(own.url, { locker: { ttlMs: 1_500 } })
    const lease = await locker.acquire('x')
    await redisCall(own, 'FLUSHALL')
    await until('it is lost', () => lease.state === 'lost')
    const next = await locker.acquire('x')
    assert.equal(await next.release(), 'released')
  })

  test('SCRIPT FLUSH between any two calls is not noticed by any caller', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    for (let round = 0; round < 3; round++) {
      await redisCall(server, 'SCRIPT', 'FLUSH')
      const lease = await locker.acquire('x')
      await redisCall(server, 'SCRIPT', 'FLUSH')
      await lease.renew()
      await redisCall(server, 'SCRIPT', 'FLUSH')
      assert.equal(await lease.release(), 'released')
    }
  })

  test.each(libraries)(
    'T52 locks are in the client’s own database, under its own prefix ($name)',
    async (library) => {
      await using own = await startRedis()
      await using rig = new Rig()
      const client = { database: 3, ...(library.prefixes && { keyPrefix: 'app:' }) }
      const [locker, other] = [
        await rig.locker(own.url, { library, client }),
        await rig.locker(own.url, { library, client }),
      ]
      const lease = await locker.acquire('x')
      assert.equal(await redisCall(own, 'DBSIZE'), 0, 'database 0 is untouched')
      assert.equal(await other.tryAcquire('x'), null)
      const waiting = other.acquire('x', { waitMs: 30_000 })
      await until('it waits', async () => ((await locker.inspect('x'))?.waiters.length ?? 0) === 1)
      assert.deepEqual(
        (await other.list()).map(({ name }) => name),
        ['x'],
      )
      assert.equal(await lease.release(), 'released')
      const next = await waiting
      assert.equal(await next.release(), 'released')
      const keyspace = String(await redisCall(own, 'INFO', 'keyspace'))
      assert(!keyspace.includes('db0'), 'nothing but database 3 was ever used')
    },
  )

  test('T51 G10 a lost connection ends neither the process nor the wait', async () => {
    await using proxy = await startProxy(server)
    await using rig = new Rig()
    const url = `redis://${proxy.host}:${proxy.port}`
    for (const library of libraries) {
      const [holder, waiter] = [
        await rig.locker(server.url),
        await rig.locker(url, { library, locker: { ttlMs: 5_000 } }),
      ]
      const lease = await holder.acquire('cut')
      const waiting = waiter.acquire('cut', { waitMs: 60_000 })
      await until('it waits', async () => ((await holder.inspect('cut'))?.waiters.length ?? 0) === 1)
      proxy.reset()
      await lease.release()
      const next = await waiting
      assert.equal(next.state, 'held', library.name)
      await next.release()
      await waiter.close()
    }
  })

  test('T56 G11 a server that is down is an error, never an answer', async () => {
    await using own = await startRedis()
    await using rig = new Rig()
    const locker = await rig.fenced(own.url, { locker: { callTimeoutMs: 500 } })
    const lease = await locker.acquire('x')
    const { fence } = lease
    await own.kill()
    const isUnavailable = (error: unknown) => isHoldfastError(error, 'BACKEND_UNAVAILABLE')
    await assert.rejects(locker.check(fence), isUnavailable)
    await assert.rejects(locker.inspect('x'), isUnavailable)
    await assert.rejects(locker.list(), isUnavailable)
    await assert.rejects(locker.tryAcquire('y'), isUnavailable)
    assert.equal(lease.name, 'x')
  })

  test('T13 a release whose reply is lost is made certain in the background', async () => {
    await using proxy = await startProxy(server)
    await using rig = new Rig()
    const url = `redis://${proxy.host}:${proxy.port}`
    const locker = await rig.locker(url, { locker: { ttlMs: 30_000, callTimeoutMs: 1_000 } })
    const lease = await locker.acquire('lost reply')
    proxy.drop('down')
    assert.equal(await lease.release(), 'unknown')
    proxy.heal()
    proxy.reset()
    const other = await rig.locker(server.url)
    const next = await other.acquire('lost reply', { waitMs: 20_000 })
    assert.equal(await next.release(), 'released')
  })

  test('2,000 held leases are renewed in calls of at most 500 each', async () => {
    await using own = await startRedis()
    await using rig = new Rig()
    const backend = await rig.backend(own.url)
    const id = systemRandom.id() + systemRandom.id()
    const session = await backend
      .openSession({ id, ttlMs: 60_000, holder: 'many' }, call())
      .then(namingGrants)
    const held = Array.from({ length: 2_000 }, (_, index) => request(`item ${index}`))
    await Promise.all(held.map((each) => session.tryAcquire(each, call())))
    const countCalls = async () =>
      Number(/cmdstat_evalsha:calls=(\d+)/.exec(String(await redisCall(own, 'INFO', 'commandstats')))?.[1])
    const before = await countCalls()
    const kept = await session.keepAlive({ held, waiting: [] }, call())
    assert(kept.kind === 'alive' && kept.lost.length === 0)
    assert.equal((await countCalls()) - before, 1 + 2_000 / 500)
  })

  test('G7 T31 a permit that was not renewed is not held again by a late renewal, although its session lives', async () => {
    await using rig = new Rig()
    const open = async (ttlMs: number) => {
      const backend = await rig.backend(server.url)
      const id = systemRandom.id() + systemRandom.id()
      return backend.openSession({ id, ttlMs, holder: 'somebody' }, call()).then(namingGrants)
    }
    const [ada, bob] = [await open(500), await open(30_000)]
    const permit = () => ({ ...request('late permit'), mode: 'permits' as const, weight: 1, capacity: 1 })
    const [late, held] = [permit(), permit()]
    await ada.tryAcquire(late, call())
    await until('its time is up', async () => {
      await ada.keepAlive({ held: [], waiting: [] }, call())
      return (await bob.tryAcquire(held, call())).kind === 'granted'
    })
    const kept = await ada.keepAlive({ held: [late], waiting: [] }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual(
      kept.lost.map(({ attempt }) => attempt),
      [late.attempt],
    )
    assert.equal(await ada.release(late, { keepForMs: 0 }, call()), 'not-held')
    assert.equal((await bob.tryAcquire(permit(), call())).kind, 'busy')
  })

  test('closing while a call is in flight leaves no caller waiting', async () => {
    await using own = await startRedis()
    await using rig = new Rig()
    const backend = await rig.backend(own.url)
    const id = systemRandom.id() + systemRandom.id()
    const session = await backend
      .openSession({ id, ttlMs: 30_000, holder: 'somebody' }, call())
      .then(namingGrants)
    await own.pause()
    try {
      const asking = session.tryAcquire(request('x'), call())
      await Promise.resolve()
      await Promise.all([
        assert.rejects(asking, (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE')),
        backend[Symbol.asyncDispose](),
      ])
    } finally {
      await own.resume()
    }
  })

  test('T102 what the first caller starts and gives up goes on for the second', async () => {
    await using proxy = await startProxy(server)
    await using rig = new Rig()
    const backend = await rig.backend(`redis://${proxy.host}:${proxy.port}`)
    proxy.hold('down')
    const open = (signal?: AbortSignal) => {
      const id = systemRandom.id() + systemRandom.id()
      return backend.openSession({ id, ttlMs: 30_000, holder: 'somebody' }, call(signal))
    }
    const controller = new AbortController()
    const [first, second] = [open(controller.signal), open()]
    second.catch(() => {})
    controller.abort(new Error('no longer needed'))
    await assert.rejects(first, { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    proxy.heal()
    assert.equal((await second).ttlMs, 30_000)
  })
})
