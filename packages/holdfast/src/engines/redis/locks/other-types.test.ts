/** Keys of other types where ours are, or would be: they belong to other programs, and harm only requests for that name. */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, startRedisCluster, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { libraryNamed } from '../../../../test/redis/clients.ts'
import { clusterUrls } from '../../../../test/redis/guard-world.ts'
import { Rig, until } from '../../../../test/redis/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import { openRedis } from './assemble.ts'
import { TOKEN_KEY } from './keys.ts'

const isUnsupported = (error: unknown): error is Error => isHoldfastError(error, 'UNSUPPORTED')

describe.runIf(wanted('redis'))('keys of other types', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())
  beforeEach(() => redisCall(server, 'FLUSHALL'))

  test('G1 G11 a lock key that is a hash is held by another client, and requests that leave with it are not harmed', async () => {
    await using rig = new Rig()
    const key = (name: string) => `plain:${name}`
    const locker = await rig.locker(server.url, { backend: { key, pollMs: 20 }, locker: { ttlMs: 2_000 } })
    await redisCall(server, 'HSET', 'plain:theirs', 'thread', '1')
    const [a, theirs, b] = await Promise.all(['a', 'theirs', 'b'].map((name) => locker.tryAcquire(name)))
    assert.deepEqual([a?.state, theirs, b?.state], ['held', null, 'held'])
    const [holder] = (await locker.inspect('theirs'))?.holders ?? []
    assert.equal(holder?.holder, '(another client)')
    const waiting = locker.acquire('theirs', { waitMs: 30_000 })
    await until('it waits', async () => ((await locker.inspect('theirs'))?.waiters.length ?? 0) === 1)
    await Promise.all([a?.renew(), b?.renew()])
    await redisCall(server, 'DEL', 'plain:theirs')
    assert.equal((await waiting).state, 'held')
    assert.deepEqual([a?.state, b?.state], ['held', 'held'])
  })

  test('G4 a held lock key that is replaced by a hash is lost, and only that', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    const [x, y, z] = await Promise.all(['x', 'y', 'z'].map((name) => locker.acquire(name)))
    await redisCall(server, 'DEL', 'holdfast:default:{x}')
    await redisCall(server, 'HSET', 'holdfast:default:{x}', 'f', '1')
    await x?.renew().catch(() => {})
    await Promise.all([y?.renew(), z?.renew()])
    assert.deepEqual([x?.state, y?.state, z?.state], ['lost', 'held', 'held'])
    assert.equal(await redisCall(server, 'TYPE', 'holdfast:default:{x}'), 'hash')
  })

  test('what we would keep beside a lock key and is of another type is left alone, and told', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    await redisCall(server, 'SET', 'holdfast:default:{x}:s', 'theirs')
    const innocent = locker.tryAcquire('y')
    await assert.rejects(locker.tryAcquire('x'), (error) => {
      assert(isHoldfastError(error, 'UNSUPPORTED'))
      assert.match(error.message, /"x".*followed by :s.*another type/)
      return true
    })
    assert.equal((await innocent)?.state, 'held')
    assert.equal(await redisCall(server, 'GET', 'holdfast:default:{x}:s'), 'theirs')
  })

  test('a mark of the tokens that is of another type is left alone, and told by its name', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url, { backend: { fencing: 'clock-backed' } })
    await redisCall(server, 'HSET', TOKEN_KEY, 'theirs', '1')
    for (const names of [['x'], ['y', 'z']])
      for (const result of await Promise.allSettled(names.map((name) => locker.tryAcquire(name)))) {
        assert(result.status === 'rejected' && isHoldfastError(result.reason, 'UNSUPPORTED'))
        assert(result.reason.message.includes(TOKEN_KEY), result.reason.message)
      }
    assert.equal(await redisCall(server, 'TYPE', TOKEN_KEY), 'hash')
  })

  test('on a Cluster, where every name has a mark of its own, that of another type harms its own name only', async () => {
    const cluster = await startRedisCluster()
    const { client, close } = await libraryNamed('ioredis 6').openCluster(clusterUrls(cluster))
    try {
      const key = (name: string) => `{one-slot}:${name}`
      const backend = openRedis({ client, fencing: 'clock-backed', issuer: 'cluster', key, pollMs: 20 })
      await using locker = createLocker(backend, { ttlMs: 5_000 })
      const holder = await locker.acquire('x')
      const waiting = assert.rejects(locker.acquire('x', { waitMs: 20_000 }), isUnsupported)
      await until('it waits', async () => ((await locker.inspect('x'))?.waiters.length ?? 0) === 1)
      const ioredis = client as unknown as { call(command: string, ...args: string[]): Promise<unknown> }
      for (const name of ['x', 'y']) {
        await ioredis.call('DEL', `{one-slot}:${name}:t`)
        await ioredis.call('HSET', `{one-slot}:${name}:t`, 'theirs', '1')
      }
      const [y, z] = await Promise.allSettled([locker.tryAcquire('y'), locker.tryAcquire('z')])
      assert(y.status === 'rejected' && isUnsupported(y.reason) && /followed by :t/.test(y.reason.message))
      assert(z.status === 'fulfilled' && z.value?.state === 'held')
      await holder.release()
      assert.equal(
        holder.state,
        'released',
        'who releases is not harmed by there being no token for the next',
      )
      await waiting
      assert.equal(await ioredis.call('TYPE', '{one-slot}:x:t'), 'hash')
    } finally {
      close()
      await cluster.stop()
    }
  })

  test('G12 a key of the user’s own must not look like what we keep about another', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url, { backend: { key: (name) => name } })
    for (const name of ['jobs:s', 'jobs:q', 'jobs:h', 'jobs:t', 'jobs:x:1'])
      await assert.rejects(locker.tryAcquire(name), (error) => isHoldfastError(error, 'INVALID_ARGUMENT'))
  })
})
