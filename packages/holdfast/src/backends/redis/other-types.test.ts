/** Keys of other types where ours are, or would be: they belong to somebody else, and harm nobody but who wants that name. */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { Rig, until } from '../../../test/redis/rig.ts'
import { isHoldfastError } from '../../core/errors.ts'

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

  test('G4 a held lock key that somebody replaces by a hash is lost, and only that', async () => {
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

  test('G12 a key of the user’s own must not look like what we keep about another', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url, { backend: { key: (name) => name } })
    for (const name of ['jobs:s', 'jobs:h', 'jobs:t', 'jobs:x:1'])
      await assert.rejects(locker.tryAcquire(name), (error) => isHoldfastError(error, 'INVALID_ARGUMENT'))
  })
})
