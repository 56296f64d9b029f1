/** The `redis` backend on a server that Redlock uses too: the keys are the same, and each is a stranger to the other. */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, describe, onTestFinished, test } from 'vitest'
import { createLocker } from '../../../locker/locker.ts'
import { redis } from '../locks/index.ts'
import { redlock } from './index.ts'

const foreign = '(another client)'
/** So long that nothing ends or is renewed by itself while a test runs. */
const ttlMs = 60_000

describe.runIf(wanted('redis'))('redlock: beside the redis backend', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  beforeEach(() => redisCall(server, 'FLUSHALL').then(() => {}))
  afterAll(() => server?.stop())

  function lockers() {
    const client = new Redis(server.url)
    const options = {
      clients: [client],
      allowFewNodes: true,
      persistence: 'every-write',
      nodeTimeoutMs: 5_000,
    } as const
    const ofRedlock = createLocker(redlock(options), { ttlMs })
    const ofRedis = createLocker(redis({ client }), { ttlMs })
    onTestFinished(async () => {
      await Promise.all([ofRedlock.close(), ofRedis.close()])
      client.disconnect()
    })
    return { ofRedlock, ofRedis }
  }

  test('what one holds the other does not get', async () => {
    const { ofRedlock, ofRedis } = lockers()
    const first = await ofRedlock.acquire('a')
    const second = await ofRedis.acquire('b')
    assert.equal(await ofRedis.tryAcquire('a'), null)
    assert.equal(await ofRedlock.tryAcquire('b'), null)
    assert.equal(await first.release(), 'released')
    assert.equal(await second.release(), 'released')
    const [third, fourth] = await Promise.all([ofRedis.tryAcquire('a'), ofRedlock.tryAcquire('b')])
    assert(third !== null && fourth !== null)
  })

  test('both can be looked at from either side', async () => {
    const { ofRedlock, ofRedis } = lockers()
    const first = await ofRedlock.acquire('a')
    const second = await ofRedis.acquire('b')
    for (const [locker, own, others] of [
      [ofRedlock, 'a', 'b'],
      [ofRedis, 'b', 'a'],
    ] as const) {
      assert.equal((await locker.inspect(others))?.holders[0]?.holder, foreign)
      assert.notEqual((await locker.inspect(own))?.holders[0]?.holder, foreign)
      const listed = await locker.list()
      assert.equal(listed.find(({ name }) => name === own)?.holders.length, 1)
      const stranger = listed.find(({ name }) => name === others)?.holders[0]?.holder
      assert(stranger === undefined || stranger === foreign)
    }
    await Promise.all([first.release(), second.release()])
  })

  test('a waiter for what the other holds gets it when it is released, long before anything expires', async () => {
    const { ofRedlock, ofRedis } = lockers()
    for (const [holding, waiting] of [
      [ofRedlock, ofRedis],
      [ofRedis, ofRedlock],
    ] as const) {
      await redisCall(server, 'SET', 'older', '', 'PX', String(ttlMs))
      const held = await holding.acquire('x')
      const next = waiting.acquire('x', { waitMs: Number.POSITIVE_INFINITY })
      await new Promise((resolve) => setTimeout(resolve, 300))
      assert.equal(await held.release(), 'released')
      const lease = await next
      assert.equal(await redisCall(server, 'EXISTS', 'older'), 1)
      await lease.release()
    }
  })
})
