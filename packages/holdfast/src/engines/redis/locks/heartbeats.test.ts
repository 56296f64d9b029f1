/** Sessions whose server refuses to write: the heartbeat of a waiter, or everything. */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { Rig, type RigOptions, until } from '../../../../test/redis/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'

const ttlMs = 60_000
const LINE = 'holdfast:default:{x}:s'

describe.runIf(wanted('redis'))('a heartbeat that the server refuses', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())
  beforeEach(() => redisCall(server, 'FLUSHALL'))

  const field = async () => {
    const fields = (await redisCall(server, 'HKEYS', LINE)) as readonly string[]
    return fields.find((each) => each.startsWith('w:')) ?? ''
  }
  const firstInLine = async () => redisCall(server, 'HGET', LINE, await field())
  const spoil = async () => redisCall(server, 'HSET', LINE, await field(), 'not what was stored here')

  async function sessionOn(rig: Rig, options: RigOptions = {}) {
    const backend = await rig.backend(server.url, options)
    const session = await backend
      .openSession({ id: newSessionId(), ttlMs, holder: 'ada' }, call())
      .then(namingGrants)
    /** Waits for x, which another session holds. */
    const waitInLine = async () => {
      const asked = request('x')
      const outcome: { error?: unknown; kind?: string } = {}
      const queued = new Promise<void>((onQueued) => {
        enqueued(session, asked, callWith(undefined, { queued: onQueued })).then(
          ({ kind }) => Object.assign(outcome, { kind }),
          (error: unknown) => Object.assign(outcome, { error }),
        )
      })
      await queued
      return { asked, outcome }
    }
    return { session, waitInLine }
  }

  test('a keep-alive that overtakes the request of a waiter does not take it for lost', async () => {
    await using rig = new Rig()
    const { session } = await sessionOn(rig)
    // After a batch of several, requests are gathered until the end of the turn.
    await Promise.all(['x', 'y'].map((name) => enqueued(session, request(name), call())))
    const asked = request('z')
    const queued = enqueued(session, asked, call())
    const kept = await session.keepAlive({ held: [], waiting: [asked] }, call())
    assert.deepEqual(kept.kind === 'alive' && kept.lost, [])
    assert.equal((await queued).kind, 'granted')
  })

  test('T16 while the memory of the server is full, what is held is renewed, and a waiter keeps its position', async () => {
    await using rig = new Rig()
    const holder = (await sessionOn(rig)).session
    const held = request('x')
    await holder.tryAcquire(held, call())
    const { session, waitInLine } = await sessionOn(rig)
    const shared = { ...request('shared'), mode: 'shared' as const, weight: 1 }
    const delayed = { ...request('delayed'), lockDelayMs: 1_000 }
    const ours = [shared, delayed, request('plain')]
    for (const each of ours) await session.tryAcquire(each, call())
    const { asked, outcome } = await waitInLine()
    const before = await firstInLine()
    await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '1')
    try {
      // One at a time: a call that has written already is refused nothing.
      for (const each of ours) {
        const kept = await session.keepAlive({ held: [each], waiting: [] }, call())
        assert(kept.kind === 'alive')
        assert.deepEqual(kept.lost, [])
      }
      const kept = await session.keepAlive({ held: [], waiting: [asked] }, call())
      assert(kept.kind === 'alive')
      assert.deepEqual([kept.lost, kept.granted], [[], []])
      assert.notEqual(await firstInLine(), before, 'the heartbeat counts')
    } finally {
      await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '0')
    }
    assert.deepEqual(outcome, {})
    await holder.release(held, { keepForMs: 0 }, call())
    await until('it is granted', () => outcome.kind === 'granted')
  })

  test('a lock is released, and force-released, in the same call as an acquire that full memory refuses', async () => {
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    const [first, second, third] = [
      await locker.acquire('x'),
      await locker.acquire('y'),
      await locker.acquire('z'),
    ]
    await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '1')
    try {
      const [refused, released] = await Promise.allSettled([locker.tryAcquire('new'), first.release()])
      assert(refused.status === 'rejected' && isHoldfastError(refused.reason, 'BACKEND_UNAVAILABLE'))
      assert.equal(refused.reason.outcome, 'not-applied')
      assert.deepEqual(released, { status: 'fulfilled', value: 'released' })
      assert.equal(await locker.forceRelease('y', { all: true, reason: 'by hand' }), 1)
    } finally {
      await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '0')
    }
    assert.equal(await redisCall(server, 'EXISTS', 'holdfast:default:{y}'), 0)
    assert.equal(third.state, 'held')
    assert.equal(await second.release(), 'not-held')
  })

  test('T16 a renewal that the server refuses costs that lease alone, and that only when the others’ time gets short', async () => {
    await using rig = new Rig()
    const clock = createFakeClock()
    const { session } = await sessionOn(rig, { backend: { clock } })
    const [spoiled, good] = [{ ...request('x'), mode: 'shared' as const, weight: 1 }, request('y')]
    await session.tryAcquire(spoiled, call())
    await session.tryAcquire(good, call())
    for (const field of (await redisCall(server, 'HKEYS', LINE)) as string[])
      if (field.startsWith('h:')) await redisCall(server, 'HSET', LINE, field, 'not what was stored here')
    const keepAlive = () => session.keepAlive({ held: [spoiled, good], waiting: [] }, call())
    const isUnknown = (error: unknown) =>
      isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown'
    await clock.advance(ttlMs / 3)
    await assert.rejects(keepAlive(), isUnknown)
    await clock.advance(ttlMs / 3)
    const kept = await keepAlive()
    assert(kept.kind === 'alive')
    assert.deepEqual(kept.lost, [{ attempt: spoiled.attempt, reason: 'unreachable' }])
    assert.deepEqual(kept.unlisted, [])
    await clock.advance((ttlMs * 2) / 3)
    const alone = session.keepAlive({ held: [spoiled], waiting: [] }, call())
    await assert.rejects(alone, isUnknown, 'no other claim is lost')
  })

  test('G6 T99 what is given up while the memory of the server is full is given up: held, kept closed, or waited for', async () => {
    await using rig = new Rig()
    const { session } = await sessionOn(rig)
    const [held, kept, unknown] = [request('x'), request('y'), request('z')]
    await session.tryAcquire(held, call())
    await session.tryAcquire(kept, call())
    const { session: other, waitInLine } = await sessionOn(rig)
    const { asked } = await waitInLine()
    await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '1')
    try {
      await assert.rejects(other.tryAcquire(request('new'), call()), /OOM/)
      await other.abandon(asked, call())
      await other.abandon(unknown, call())
      assert.equal(await session.release(kept, { keepForMs: 60_000 }, call()), 'released')
      assert.equal(await session.release(held, { keepForMs: 0 }, call()), 'released')
    } finally {
      await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '0')
    }
    assert.equal((await other.tryAcquire(request('y'), call())).kind, 'busy', 'it is kept closed')
    assert.equal((await other.tryAcquire(unknown, call())).kind, 'busy', 'what was abandoned can never land')
    assert.equal((await other.tryAcquire(request('x'), call())).kind, 'granted')
  })

  test('G11 a waiter is told that nothing is known of its position when that was not confirmed for one TTL, and no other waiter is', async () => {
    await using rig = new Rig()
    const clock = createFakeClock()
    const holder = (await sessionOn(rig)).session
    const held = request('x')
    await holder.tryAcquire(held, call())
    const { session, waitInLine } = await sessionOn(rig, { backend: { clock } })
    const ours = request('y')
    await session.tryAcquire(ours, call())
    const { asked, outcome } = await waitInLine()
    await spoil()
    const keepAlive = async () => {
      const kept = await session.keepAlive({ held: [ours], waiting: [asked] }, call())
      assert(kept.kind === 'alive')
      assert.deepEqual([kept.lost, kept.granted, kept.unlisted], [[], [], []])
    }
    await keepAlive()
    assert.deepEqual(outcome, {})
    await clock.advance(ttlMs)
    await keepAlive()
    assert(isHoldfastError(outcome.error, 'BACKEND_UNAVAILABLE'))
    assert.equal(outcome.error.outcome, 'unknown')
  })

  test('T30 a lease is renewed although a waiter of the same session is refused', async () => {
    await using rig = new Rig()
    const other = await rig.locker(server.url)
    const holding = await other.acquire('x')
    const locker = await rig.locker(server.url)
    const lease = await locker.acquire('y')
    const waiting = locker.acquire('x', { waitMs: 30_000 })
    waiting.catch(() => {})
    await until('it waits', async () => ((await other.inspect('x'))?.waiters.length ?? 0) === 1)
    await spoil()
    await lease.renew()
    assert.equal(lease.state, 'held')
    assert.equal(holding.state, 'held')
  })
})
