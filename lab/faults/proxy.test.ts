// Each fault of the proxy, on a real Redis: it must really bite, and only where it should.

import assert from 'node:assert/strict'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { connectRedis, redisCall, type Server, startRedis, waitFor, wanted } from '../servers/index.ts'
import { type FaultyProxy, startProxy } from './index.ts'

describe.runIf(wanted('redis'))('the proxy', () => {
  let redis: Server
  beforeAll(async () => {
    redis = await startRedis()
  })
  afterAll(() => redis?.stop())

  const value = (key: string) => redisCall(redis, 'GET', key)
  const clients = async () =>
    String(await redisCall(redis, 'CLIENT', 'LIST', 'TYPE', 'normal'))
      .trim()
      .split('\n').length

  /** A promise that says how it ended instead of rejecting, and whether it has. */
  function watch(promise: Promise<unknown>) {
    const watched = { settled: false, outcome: Promise.resolve<unknown>(undefined) }
    watched.outcome = promise
      .catch((error: Error) => error)
      .finally(() => {
        watched.settled = true
      })
    return watched
  }

  async function through(use: (proxy: FaultyProxy) => Promise<void>): Promise<void> {
    await using proxy = await startProxy(redis)
    await use(proxy)
  }

  test('passes everything on when nothing is wrong, also what does not fit into one packet', () =>
    through(async (proxy) => {
      using client = await connectRedis(proxy)
      const large = 'x'.repeat(3_000_000)
      assert.equal(await client.call('SET', 'large', large), 'OK')
      assert.equal(await client.call('GET', 'large'), large)
    }))

  test('drop down: the server did it, and the client never hears', () =>
    through(async (proxy) => {
      using client = await connectRedis(proxy)
      await client.call('PING')
      proxy.drop('down')
      const call = watch(client.call('SET', 'drop-down', 'done'))
      await waitFor('the answer to be swallowed', async () => proxy.swallowedBytes('down') > 0)
      assert.equal(await value('drop-down'), 'done')
      assert.equal(call.settled, false)
      proxy.heal()
      assert.ok((await call.outcome) instanceof Error, 'a stream with a hole in it must not go on')
    }))

  test('drop up: the server never hears of it', () =>
    through(async (proxy) => {
      using client = await connectRedis(proxy)
      await client.call('PING')
      proxy.drop('up')
      const call = watch(client.call('SET', 'drop-up', 'done'))
      await waitFor('the request to be swallowed', async () => proxy.swallowedBytes('up') > 0)
      assert.equal(await value('drop-up'), null)
      proxy.heal()
      assert.ok((await call.outcome) instanceof Error)
      assert.equal(await value('drop-up'), null)
    }))

  test('blackhole: no byte passes, and the server does not learn that the client has gone', () =>
    through(async (proxy) => {
      const before = await clients()
      using client = await connectRedis(proxy)
      await client.call('PING')
      assert.equal(await clients(), before + 1)
      proxy.blackhole()
      const call = watch(client.call('SET', 'blackhole', 'done'))
      await waitFor('the request to be swallowed', async () => proxy.swallowedBytes('up') > 0)
      client.close()
      await call.outcome
      assert.equal(await clients(), before + 1)
      proxy.heal()
      await waitFor('the server to learn of it', async () => (await clients()) === before)
      assert.equal(await value('blackhole'), null)
    }))

  test('blackhole: a new connection does not reach the server', () =>
    through(async (proxy) => {
      const before = await clients()
      proxy.blackhole()
      using client = await connectRedis(proxy)
      const call = watch(client.call('PING'))
      await waitFor('the request to be swallowed', async () => proxy.swallowedBytes('up') > 0)
      assert.equal(await clients(), before)
      assert.equal(call.settled, false)
    }))

  test('hold: a request lands long after its sender has given up', () =>
    through(async (proxy) => {
      const client = await connectRedis(proxy)
      await client.call('PING')
      proxy.hold('up')
      const call = watch(client.call('SET', 'hold', 'late'))
      client.close()
      await call.outcome
      await redisCall(redis, 'SET', 'hold', 'by a successor')
      proxy.heal()
      await waitFor('the late request to land', async () => (await value('hold')) === 'late')
    }))

  test('hold: nothing is lost when the fault ends', () =>
    through(async (proxy) => {
      using client = await connectRedis(proxy)
      await client.call('PING')
      proxy.hold('down')
      const call = watch(client.call('INCR', 'hold-down'))
      await waitFor('the effect', async () => (await value('hold-down')) === '1')
      assert.equal(call.settled, false)
      proxy.heal()
      assert.equal(await call.outcome, 1)
    }))

  test('reset: both sides lose the connection at once', () =>
    through(async (proxy) => {
      const before = await clients()
      using client = await connectRedis(proxy)
      const call = watch(client.call('BLPOP', 'reset', 0))
      await waitFor('the server to have the request', async () => (await clients()) === before + 1)
      proxy.reset()
      assert.equal(((await call.outcome) as NodeJS.ErrnoException).code, 'ECONNRESET')
      await waitFor('the server to notice', async () => (await clients()) === before)
      using again = await connectRedis(proxy)
      assert.equal(await again.call('PING'), 'PONG')
    }))

  test('refuse: new connections fail, those that there are go on', () =>
    through(async (proxy) => {
      using old = await connectRedis(proxy)
      await old.call('PING')
      proxy.refuse()
      await assert.rejects(async () => (await connectRedis(proxy)).call('PING'))
      assert.equal(await old.call('PING'), 'PONG')
    }))

  test('delay: others who start later finish earlier', () =>
    through(async (proxy) => {
      using client = await connectRedis(proxy)
      await client.call('PING')
      proxy.delay(300, 'up')
      const started = performance.now()
      const call = watch(client.call('INCR', 'delay'))
      assert.equal(await redisCall(redis, 'INCR', 'delay'), 1)
      assert.equal(await call.outcome, 2)
      assert.ok(performance.now() - started >= 299, 'it came too early')
    }))

  test('slow: a request in single bytes takes its time, and is still one request', () =>
    through(async (proxy) => {
      using client = await connectRedis(proxy)
      await client.call('PING')
      proxy.slow({ bytes: 1, everyMs: 5 }, 'up')
      const started = performance.now()
      const call = watch(client.call('APPEND', 'slow', 'slow'))
      assert.equal(await redisCall(redis, 'APPEND', 'slow', 'fast'), 4)
      assert.equal(await call.outcome, 8)
      // *3 $6 APPEND $4 slow $4 slow: 40 bytes with the ends of lines.
      assert.ok(performance.now() - started >= 39 * 4, 'it came too early')
    }))

  test('replay: the same bytes once more count twice, and the client hears one answer', () =>
    through(async (proxy) => {
      using client = await connectRedis(proxy)
      await client.call('PING')
      const recording = proxy.record()
      assert.equal(await client.call('INCR', 'replay'), 1)
      await recording.replay()
      assert.equal(await value('replay'), '2')
      assert.equal(await client.call('GET', 'replay'), '2')
      await recording.replay()
      assert.equal(await value('replay'), '3')
    }))

  test('a fault for some connections leaves the others alone', async () => {
    await using proxy = await startProxy(redis, {
      label: (bytes) => (bytes.includes('first') ? 'first' : 'other'),
    })
    using first = await connectRedis(proxy)
    using other = await connectRedis(proxy)
    await first.call('ECHO', 'first')
    await other.call('ECHO', 'second')
    proxy.blackhole(({ label }) => label === 'first')
    const call = watch(first.call('SET', 'some', 'done'))
    await waitFor('the request to be swallowed', async () => proxy.swallowedBytes('up') > 0)
    assert.equal(await other.call('GET', 'some'), null)
    assert.equal(call.settled, false)
  })
})
