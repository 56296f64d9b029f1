/**
 * Other Redis lock clients and Holdfast exclude each other on the lock key alone: the classic recipe as any language
 * would write it, and a client library that knows nothing of us.
 */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { Mutex } from 'redis-semaphore'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { pause, Rig, until } from '../../../../test/redis/rig.ts'
import { callWith } from '../../../base/aborting.ts'

const compareAndDelete =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

describe.runIf(wanted('redis'))('foreign clients of redis', () => {
  let server: Server
  let client: Redis
  beforeAll(async () => {
    server = await startRedis()
    client = new Redis(server.url)
  })
  afterAll(async () => {
    client?.disconnect()
    await server?.stop()
  })
  beforeEach(() => redisCall(server, 'FLUSHALL'))

  const key = 'holdfast:default:{report}'
  const take = (ttlMs: number) => redisCall(server, 'SET', key, 'their-value', 'NX', 'PX', ttlMs)
  const giveBack = () => redisCall(server, 'EVAL', compareAndDelete, 1, key, 'their-value')

  test('the classic recipe is refused while Holdfast holds, and gets in after the release', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    const lease = await locker.acquire('report')
    assert.equal(await take(10_000), null)
    assert.equal(await giveBack(), 0, 'it cannot release what is ours')
    await lease.release()
    assert.equal(await take(10_000), 'OK')
  })

  test('G13 the classic recipe is refused while Holdfast’s readers and permits hold', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    const readers = [
      await locker.acquire('report', { mode: 'shared' }),
      await locker.acquire('report', { mode: 'shared', ttlMs: 5_000 }),
    ]
    assert.equal(await take(10_000), null)
    for (const reader of readers) await reader.release()
    assert.equal(await take(10_000), 'OK')
    await giveBack()
    const permit = await locker.acquirePermits('report', { capacity: 3 })
    assert.equal(await take(10_000), null)
    await permit.release()
    assert.equal(await take(10_000), 'OK')
  })

  test('Holdfast is refused while the classic recipe holds, gets in after its release, and is not released by it', async () => {
    await using rig = new Rig()
    // No keep-alive comes in time to find the name free: the first waiter must look by itself.
    const locker = await rig.locker(server.url, { backend: { pollMs: 20 }, locker: { ttlMs: 600_000 } })
    await take(600_000)
    assert.equal(await locker.tryAcquire('report'), null)
    const [shown] = (await locker.inspect('report'))?.holders ?? []
    assert.equal(shown?.holder, '(another client)')
    const waiting = locker.acquire('report', { waitMs: 30_000 })
    await until('we wait', async () => ((await locker.inspect('report'))?.waiters.length ?? 0) === 1)
    await giveBack()
    const lease = await waiting
    assert.equal(await giveBack(), 0)
    assert.equal(await take(10_000), null)
    assert.equal(await lease.release(), 'released')
  })

  test('G10 Holdfast gets in when the time of the classic recipe is up, and the other way round', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    await take(300)
    const lease = await locker.acquire('report', { waitMs: 30_000, ttlMs: 1_000 })
    assert.equal(await take(300), null)
    await lease.release()
    const backend = await rig.backend(server.url)
    const call = callWith()
    const session = await backend.openSession({ id: 'a-session-that-dies', ttlMs: 300, holder: 'h' }, call)
    const asked = { name: 'report', attempt: 'left-alone.secret', lockDelayMs: 0 }
    const exclusive = { mode: 'exclusive', weight: 2 ** 30, capacity: 2 ** 30 } as const
    assert.equal((await session.tryAcquire({ ...asked, ...exclusive }, call)).kind, 'granted')
    await until('the classic recipe gets in', async () => (await take(10_000)) === 'OK')
  })

  /** The keys of that library: teams that have them keep them. */
  const theirKeys = { key: (name: string) => `mutex:${name}` }
  const theirMutex = (acquireTimeout: number) =>
    new Mutex(client, 'report', { lockTimeout: 10_000, acquireTimeout, retryInterval: 2 })

  test('a foreign client library and Holdfast exclude each other on a key of its choosing', async () => {
    await using rig = new Rig()
    const backend = { ...theirKeys, pollMs: 5 }
    const lockers = [await rig.locker(server.url, { backend }), await rig.locker(server.url, { backend })]
    const turns = { ours: 0, theirs: 0 }
    let inside = 0
    const enter = async (who: keyof typeof turns) => {
      assert.equal(++inside, 1, 'G1: two inside')
      await pause(1)
      inside--
      turns[who]++
    }
    const ours = lockers.map(async (locker) => {
      for (let turn = 0; turn < 15; turn++) {
        await locker.withLease('report', { waitMs: 60_000 }, () => enter('ours'))
        // A queued waiter always comes before clients that poll.
        await pause(10)
      }
    })
    const theirs = Array.from({ length: 2 }, async () => {
      for (let turn = 0; turn < 15; turn++) {
        const mutex = theirMutex(60_000)
        await mutex.acquire()
        await enter('theirs')
        await mutex.release()
      }
    })
    await Promise.all([...ours, ...theirs])
    assert.deepEqual(turns, { ours: 30, theirs: 30 })
  })

  test('the foreign library is refused while we hold, gets in when we release, and its release lets us in', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url, { backend: { ...theirKeys, pollMs: 20 } })
    const lease = await locker.acquire('report')
    await assert.rejects(theirMutex(100).acquire())
    await lease.release()
    const mutex = theirMutex(10_000)
    await mutex.acquire()
    assert.equal(await locker.tryAcquire('report'), null)
    const waiting = locker.acquire('report', { waitMs: 30_000 })
    await until('we wait', async () => ((await locker.inspect('report'))?.waiters.length ?? 0) === 1)
    await mutex.release()
    assert.equal(await (await waiting).release(), 'released')
  })

  test('a foreign client that deletes our key is told to the holder at the next keep-alive, and wakes no waiter wrongly', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url, { locker: { ttlMs: 1_000 } })
    const lease = await locker.acquire('report')
    await redisCall(server, 'DEL', key)
    await until('it is told', () => lease.state === 'lost')
    assert.equal((lease.signal.reason as { reason: string }).reason, 'deleted')
  })
})
