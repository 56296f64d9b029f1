/** `waitReplicas` on a real primary with a real replica: met, not met, and not met with a waiter behind. */
import assert from 'node:assert/strict'
import { startProxy } from 'holdfast-lab/faults'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { describe, test } from 'vitest'
import { libraryNamed } from '../../../test/redis/clients.ts'
import { Rig, until } from '../../../test/redis/rig.ts'
import { defaults } from '../../base/defaults.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'

const waits = { backend: { waitReplicas: { count: 1, timeoutMs: 500 } } }

/** One that takes part: after the first copy of everything a replica may take a second to ask for what comes next. */
async function startReplica(
  primary: Server,
  through: { host: string; port: number } = primary,
): Promise<Server> {
  const replica = await startRedis({ replicaOf: through })
  await redisCall(primary, 'SET', 'anything', 'to confirm')
  await until('it has confirmed something', async () =>
    /^slave0:.*state=online,offset=[1-9]/m.test(String(await redisCall(primary, 'INFO', 'replication'))),
  )
  return replica
}

describe.runIf(wanted('redis'))('waitReplicas', () => {
  test('a grant that a replica has is handed out, and the replica has it', async () => {
    await using primary = await startRedis()
    await using replica = await startReplica(primary)
    await using rig = new Rig()
    const locker = await rig.locker(primary.url, waits)
    const lease = await locker.acquire('x')
    assert.equal(await redisCall(replica, 'EXISTS', 'holdfast:default:{x}'), 1)
    assert.equal(await lease.release(), 'released')
    const shared = await locker.acquire('y', { mode: 'shared' })
    assert.equal(await redisCall(replica, 'EXISTS', 'holdfast:default:{y}'), 1)
    await shared.release()
  })

  test.each(['ioredis 6', 'node-redis 6'])(
    'a connection for WAIT that has ended unused costs no grant: %s',
    async (library) => {
      await using primary = await startRedis()
      await using _ = await startReplica(primary)
      await using rig = new Rig()
      const locker = await rig.locker(primary.url, { ...waits, library: libraryNamed(library) })
      await (await locker.acquire('x')).release()
      const [, id = ''] =
        /id=(\d+) .* cmd=wait /m.exec(String(await redisCall(primary, 'CLIENT', 'LIST'))) ?? []
      assert.equal(await redisCall(primary, 'CLIENT', 'KILL', 'ID', id), 1)
      assert.equal((await locker.tryAcquire('x'))?.state, 'held')
    },
  )

  test('G11 a grant that no replica confirms in time is undone, told as not applied, and leaves nothing held', async () => {
    await using primary = await startRedis()
    await using rig = new Rig()
    const locker = await rig.locker(primary.url, waits)
    await assert.rejects(locker.tryAcquire('x'), (error) => {
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
      assert.equal(error.outcome, 'not-applied')
      assert.match(error.message, /only 0 of 1 replicas had it after 500 ms; it was undone/)
      return true
    })
    const other = await rig.locker(primary.url)
    const lease = await other.tryAcquire('x')
    assert(lease !== null)
    await lease.release()
  })

  test('G1 a waiter whose keep-alive finds the grant is not handed it before it is confirmed', async () => {
    await using primary = await startRedis()
    await using rig = new Rig()
    const locker = await rig.locker(primary.url, {
      backend: { waitReplicas: { count: 1, timeoutMs: 1_500 } },
      locker: { ttlMs: 1_500, callTimeoutMs: 10_000 },
    })
    await assert.rejects(locker.acquire('x', { waitMs: 4_000 }))
    const other = await rig.locker(primary.url)
    const lease = await other.acquire('x', { waitMs: 20_000 })
    assert.equal(lease.state, 'held')
  })

  test('grants that come at once share the wait: all are told within the limit of a call', async () => {
    await using primary = await startRedis()
    await using rig = new Rig()
    const locker = await rig.locker(primary.url, waits)
    const outcomes = await Promise.allSettled(
      Array.from({ length: 30 }, (_, index) => locker.tryAcquire(`x/${index}`)),
    )
    for (const outcome of outcomes) {
      assert(outcome.status === 'rejected' && isHoldfastError(outcome.reason, 'BACKEND_UNAVAILABLE'))
      assert.match(outcome.reason.message, /only 0 of 1 replicas had it after 500 ms; it was undone/)
    }
    const stats = String(await redisCall(primary, 'INFO', 'commandstats'))
    const waited = Number(/cmdstat_wait:calls=(\d+)/.exec(stats)?.[1])
    assert(waited <= 5, `${waited} waits for 30 grants`)
  })

  test('T16 G6 a connection for WAIT that is cut off unnoticed costs its grant, in bounded time, and no other', async () => {
    await using primary = await startRedis()
    await using replica = await startReplica(primary)
    let seen = 0
    const label = (bytes: Buffer) => (bytes.includes('WAIT') ? `wait ${++seen}` : '')
    await using proxy = await startProxy(primary, { label })
    proxy.blackhole(({ label }) => label === 'wait 1')
    await using rig = new Rig()
    const clock = createFakeClock()
    const locker = await rig.locker(`redis://${proxy.host}:${proxy.port}`, {
      backend: { ...waits.backend, clock },
      // Far longer than the wait itself may take: what is tested is the limit of the wait.
      locker: { ttlMs: 120_000, callTimeoutMs: 30_000 },
    })
    const told: unknown[] = []
    const first = locker.tryAcquire('x')
    first.catch((error: unknown) => told.push(error))
    await until('its WAIT is swallowed', () => proxy.swallowedBytes('up') > 0)
    assert.equal(await redisCall(primary, 'EXISTS', 'holdfast:default:{x}'), 1, 'the primary has granted it')
    const limitMs = waits.backend.waitReplicas.timeoutMs + defaults.callTimeoutMs
    await clock.advance(limitMs - 1)
    assert.equal(told.length, 0)
    await clock.advance(1)
    await until('it is told', () => told.length > 0)
    const [error] = told
    assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
    assert.equal(error.outcome, 'not-applied')
    assert.match(error.message, /the primary granted it, but it could not be confirmed .*; it was undone/)
    assert.equal(await redisCall(primary, 'EXISTS', 'holdfast:default:{x}'), 0)
    const next = await locker.tryAcquire('x')
    assert.equal(next?.state, 'held')
    assert.equal(seen, 2, 'it was confirmed on another connection')
    assert.equal(await redisCall(replica, 'EXISTS', 'holdfast:default:{x}'), 1)
    assert.equal(await next?.release(), 'released')
  })

  test('a waiter’s grant is confirmed too', async () => {
    await using primary = await startRedis()
    await using link = await startProxy(primary)
    await using replica = await startReplica(primary, link)
    await using rig = new Rig()
    const [holder, waiter] = [await rig.locker(primary.url), await rig.locker(primary.url, waits)]
    const lease = await holder.acquire('x')
    const waiting = waiter.acquire('x', { waitMs: 30_000 })
    await until('it waits', async () => ((await holder.inspect('x'))?.waiters.length ?? 0) === 1)
    await lease.release()
    const next = await waiting
    const value = String(await redisCall(replica, 'GET', 'holdfast:default:{x}'))
    assert(value.startsWith(`hf1|${next.id}.`))
    await next.release()
  })

  test('G12 nonsense is refused', async () => {
    await using rig = new Rig()
    for (const waitReplicas of [{ count: 0, timeoutMs: 10 }, { count: 1, timeoutMs: 0 }, { count: 1 }])
      await assert.rejects(
        rig.backend('redis://127.0.0.1:1', { backend: { waitReplicas: waitReplicas as never } }),
        (error) => isHoldfastError(error, 'INVALID_ARGUMENT'),
      )
  })
})
