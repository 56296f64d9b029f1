/** Requests that are refused before they do anything: they cost other requests nothing, and leave nothing behind. */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { Rig } from '../../../../test/redis/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { enqueued } from '../../../testing/enqueued.ts'

describe.runIf(wanted('redis'))('a request that was never asked for', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())
  beforeEach(() => redisCall(server, 'FLUSHALL'))

  const keys = {
    'is refused': (name: string) => name,
    throws: (name: string) => {
      if (name === 'user:s') throw new TypeError('no such user')
      return name
    },
  }

  test.each(Object.entries(keys))('T29 a name whose key %s costs no other lease anything', async (_, key) => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url, { backend: { key } })
    const session = await backend
      .openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'ada' }, call())
      .then(namingGrants)
    const [good, bad] = [request('good'), request('user:s')]
    await session.tryAcquire(good, call())
    const isRefused = (error: unknown) => isHoldfastError(error, 'INVALID_ARGUMENT')
    await assert.rejects(session.tryAcquire(bad, call()), isRefused)
    await assert.rejects(async () => enqueued(session, bad, call()), isRefused)
    const kept = await session.keepAlive({ held: [good], waiting: [] }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual([kept.lost, kept.unlisted], [[], []], 'there is nothing to abandon')
    // A caller that abandons it all the same is not told to try again for ever.
    await session.abandon(bad, call())
    await session.close(call())
    assert.deepEqual(await redisCall(server, 'KEYS', '*'), [])
  })

  test('T96 a waiter whose request waits for the first contact of an attached session is not called lost by a keep-alive', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const opened = await backend.openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'ada' }, call())
    const session = await (await rig.backend(server.url)).attachSession(opened.handle, call())
    assert(session)
    const waiter = request('a')
    const asked = enqueued(session, waiter, call())
    const kept = await session.keepAlive({ held: [], waiting: [waiter] }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual(kept.lost, [])
    assert.equal((await asked).kind, 'granted')
    await session.close(call())
  })

  test('G11 a refusal of all requests is told in the server’s own words, for all that were sent together', async () => {
    await using primary = await startRedis()
    await using rig = new Rig()
    const backend = await rig.backend(primary.url, { backend: { fencing: 'clock-backed' } })
    const session = await backend
      .openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'ada' }, call())
      .then(namingGrants)
    const held = { ...request('held'), mode: 'shared' as const, weight: 1 }
    await session.tryAcquire(held, call())
    await redisCall(primary, 'REPLICAOF', server.host, server.port)
    const asked = ['a', 'b', 'c'].map((name) => session.tryAcquire(request(name), call()))
    const all = [...asked, session.release(held, { keepForMs: 0 }, call())]
    for (const outcome of await Promise.allSettled(all)) {
      assert(outcome.status === 'rejected' && isHoldfastError(outcome.reason, 'BACKEND_UNAVAILABLE'))
      assert.equal(outcome.reason.outcome, 'not-applied')
      assert.match(outcome.reason.message, /^redis: script: READONLY/)
    }
  })

  test('G6 what a server refuses because its memory is full leaves no mark, neither then nor later', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const session = await backend
      .openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'ada' }, call())
      .then(namingGrants)
    const isRefused = (error: unknown) =>
      isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied'
    const taken = request('taken')
    await session.tryAcquire(taken, call())
    await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '1')
    try {
      const enqueue: typeof session.tryAcquire = (asked, each) => enqueued(session, asked, each) as never
      for (const ask of [session.tryAcquire.bind(session), enqueue]) {
        await assert.rejects(async () => ask(request('alone'), call()), isRefused)
        const several = ['a', 'b', 'c'].map((name) => ask(request(name), call()))
        for (const { status } of await Promise.allSettled(several)) assert.equal(status, 'rejected')
      }
      await assert.rejects(
        async () => enqueued(session, request('taken'), call()),
        isRefused,
        'no position in the queue',
      )
    } finally {
      await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '0')
    }
    const kept = await session.keepAlive({ held: [taken], waiting: [] }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual(kept.unlisted, [], 'there is nothing to abandon')
    assert.deepEqual(await redisCall(server, 'KEYS', '*:x:*'), [])
  })
})
