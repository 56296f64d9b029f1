/** What becomes of a session when the server refuses to write: the heartbeat of one who waits, or everything. */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { Rig, type RigOptions, until } from '../../../test/redis/rig.ts'
import { isHoldfastError } from '../../core/errors.ts'
import { call, request } from '../../testing/conformance/requests.ts'
import { newSessionId } from '../../testing/conformance/stage.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'

const ttlMs = 60_000
const LINE = 'holdfast:default:{x}:s'

describe.runIf(wanted('redis'))('a heartbeat that the server refuses', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())
  beforeEach(() => redisCall(server, 'FLUSHALL'))

  const firstInLine = () => redisCall(server, 'HGET', LINE, 'q0')
  const spoil = () => redisCall(server, 'HSET', LINE, 'q0', 'not what was stored here')

  async function sessionOn(rig: Rig, options: RigOptions = {}) {
    const backend = await rig.backend(server.url, options)
    const session = await backend.openSession({ id: newSessionId(), ttlMs, holder: 'ada' }, call())
    const enqueue = session.enqueue?.bind(session)
    assert(enqueue !== undefined)
    /** Waits for x, which somebody else holds. */
    const waitInLine = async () => {
      const asked = request('x')
      const outcome: { error?: unknown; kind?: string } = {}
      const queued = new Promise<void>((onQueued) => {
        enqueue(asked, { ...call(), onQueued }).then(
          ({ kind }) => Object.assign(outcome, { kind }),
          (error: unknown) => Object.assign(outcome, { error }),
        )
      })
      await queued
      return { asked, outcome }
    }
    return { session, waitInLine }
  }

  test('T16 renewals count while the memory of the server is full, and whoever waits keeps the place', async () => {
    await using rig = new Rig()
    const holder = (await sessionOn(rig)).session
    const held = request('x')
    await holder.tryAcquire(held, call())
    const { session, waitInLine } = await sessionOn(rig)
    // So many that the heartbeats are a call of their own: one that has written already is refused nothing.
    const ours = Array.from({ length: 500 }, (_, index) => request(`item ${index}`))
    await Promise.all(ours.map((each) => session.tryAcquire(each, call())))
    const { asked, outcome } = await waitInLine()
    const before = await firstInLine()
    await redisCall(server, 'CONFIG', 'SET', 'maxmemory', '1')
    const kept = await session
      .keepAlive({ held: ours, waiting: [asked] }, call())
      .finally(() => redisCall(server, 'CONFIG', 'SET', 'maxmemory', '0'))
    assert.equal(await firstInLine(), before, 'the heartbeat was refused')
    assert(kept.kind === 'alive')
    assert.deepEqual([kept.lost, kept.granted], [[], []])
    assert.deepEqual(outcome, {})
    await holder.release(held, { keepForMs: 0 }, call())
    await until('its turn has come', () => outcome.kind === 'granted')
  })

  test('G6 what is given up while the memory of the server is full is given up: held, kept closed, or waited for', async () => {
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

  test('G11 it is told that nothing is known of its place when that was not confirmed for one TTL, and nobody else is', async () => {
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

  test('T30 a lease is renewed although somebody who waits through the same session is refused', async () => {
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
