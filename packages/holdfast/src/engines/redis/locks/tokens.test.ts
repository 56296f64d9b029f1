/** Tokens on Redis: they must increase through everything that takes the data away, as long as the clock does not go back. */
import assert from 'node:assert/strict'
import { createClock, startProxy } from 'holdfast-lab/faults'
import { redisCall, type Server, startRedis, startRedisCluster, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { libraryNamed } from '../../../../test/redis/clients.ts'
import { clusterUrls } from '../../../../test/redis/guard-world.ts'
import { Rig, until } from '../../../../test/redis/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { onEvent } from '../../../base/events.ts'
import { systemRandom } from '../../../base/ids.ts'
import type { Locker } from '../../../base/types.ts'
import { memoryGuard } from '../../../guards/memory.ts'
import { createLocker } from '../../../locker/locker.ts'
import { LOCK_CAPACITY } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { openRedis } from './assemble.ts'

const held: unknown[] = []

async function tokenOf(locker: Locker<'fenced'>, name = 'x'): Promise<bigint> {
  const lease = await locker.acquire(name)
  held.push(lease)
  const { token } = lease.fence
  await lease.release()
  return token
}

describe.runIf(wanted('redis'))('tokens on redis', () => {
  /** For tests that set the mark. */
  let marked: Server
  beforeAll(async () => {
    marked = await startRedis()
  })
  afterAll(() => marked?.stop())

  test('T38 G2 tokens increase over FLUSHALL, and over a restart without persistence', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const before = await tokenOf(await rig.fenced(server.url))
    await redisCall(server, 'FLUSHALL')
    const flushed = await tokenOf(await rig.fenced(server.url))
    await server.kill()
    await server.restart()
    const restarted = await tokenOf(await rig.fenced(server.url))
    assert(before < flushed && flushed < restarted)
  })

  test('T38 G2 tokens increase over the promotion of a replica that has not caught up', async () => {
    await using primary = await startRedis()
    await using link = await startProxy(primary)
    await using replica = await startRedis({ replicaOf: link })
    await using rig = new Rig()
    const locker = await rig.fenced(primary.url)
    const replicated = await tokenOf(locker)
    await until(
      'the replica has it',
      async () => (await redisCall(replica, 'EXISTS', 'holdfast:token')) === 1,
    )
    link.blackhole()
    const unseen = await tokenOf(locker)
    await primary.kill()
    await redisCall(replica, 'REPLICAOF', 'NO', 'ONE')
    const promoted = await tokenOf(await rig.fenced(replica.url))
    assert(replicated < unseen && unseen < promoted)
  })

  test('G2 a call that fails in the middle leaves no token behind that could be drawn again', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const backend = await rig.backend(server.url, { backend: { fencing: 'clock-backed' } })
    const call = () => callWith()
    const session = await backend.openSession({ id: 's'.repeat(32), ttlMs: 60_000, holder: 'h' }, call())
    const exclusive = { mode: 'exclusive', weight: LOCK_CAPACITY, capacity: LOCK_CAPACITY } as const
    const acquire = (index: number, note: string) => {
      const attempt = `${systemRandom.id()}.${systemRandom.id()}`
      return session.tryAcquire({ name: `n${index}`, attempt, lockDelayMs: 0, note, ...exclusive }, call())
    }
    // A name whose place for the rare is not a hash makes its request fail after those before it were granted.
    await redisCall(server, 'SET', 'holdfast:default:{n20}:s', 'not a hash')
    const [failed] = (
      await Promise.allSettled(Array.from({ length: 21 }, (_, index) => acquire(index, 'x')))
    ).slice(-1)
    assert.equal(failed?.status, 'rejected')
    const found = await Promise.all(
      Array.from({ length: 20 }, (_, index) => backend.inspect(`n${index}`, call())),
    )
    const tokens = found.flatMap((state) => state?.holders ?? []).map(({ token }) => token ?? 0n)
    assert.equal(tokens.length, 20)
    const mark = BigInt(String(await redisCall(server, 'GET', 'holdfast:token')))
    for (const token of tokens) assert(token <= mark, 'the mark is not behind what was granted')
  })

  test('G2 tokens of requests that travel together increase, and so do those of the next call', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const locker = await rig.fenced(server.url)
    let last = 0n
    for (let round = 0; round < 5; round++) {
      const leases = await Promise.all(Array.from({ length: 100 }, (_, index) => locker.acquire(`n${index}`)))
      const tokens = leases.map(({ fence }) => fence.token)
      assert.equal(new Set(tokens).size, tokens.length)
      for (const token of tokens) assert(token > last)
      for (const token of tokens) if (token > last) last = token
      await Promise.all(leases.map((lease) => lease.release()))
    }
  })

  test('T38 no key per name is left behind', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const locker = await rig.fenced(server.url)
    for (let index = 0; index < 50; index++) await tokenOf(locker, `item ${index}`)
    await locker.close()
    assert.deepEqual(await redisCall(server, 'KEYS', '*'), ['holdfast:token'])
  })

  test('T69 T42 tokens of the same microsecond are whole numbers, all different', async () => {
    await using server = await startRedis({ clock: frozen() })
    await using rig = new Rig()
    const locker = await rig.fenced(server.url)
    const tokens: bigint[] = []
    for (let index = 0; index < 20; index++) tokens.push(await tokenOf(locker))
    for (const [index, token] of tokens.entries()) assert.equal(token, (tokens[0] ?? 0n) + BigInt(index))
    const stored = String(await redisCall(server, 'GET', 'holdfast:token'))
    assert.match(stored, /^\d{16}$/)
  })

  const unusableMarks = [
    '4503599627370495', // The largest that leaves room for an epoch: the next would be one more.
    '9007199254740992',
    '9007199254740993',
    '9223372036854775807',
    'not a number',
    '100000000000000x',
    'inf',
    'nan',
    '-1',
    '0x10',
    '',
  ]

  test.each(unusableMarks)(
    'G2 G11 a mark of the last token that nothing can be added to grants nothing, and says what to do: “%s”',
    async (mark) => {
      await using rig = new Rig()
      const locker = await rig.fenced(marked.url)
      await redisCall(marked, 'SET', 'holdfast:token', mark)
      const isSpent = (error: unknown) => {
        assert(isHoldfastError(error, 'UNSUPPORTED'), String(error))
        assert.match(error.message, /"holdfast:token".*higher epoch/s)
        return true
      }
      // Alone, with others, with a note or a lock-delay, and shared: each is another way through the scripts.
      await assert.rejects(locker.tryAcquire('x'), isSpent)
      await assert.rejects(locker.acquire('x', { waitMs: 20_000 }), isSpent)
      for (const result of await Promise.allSettled(['a', 'b'].map((name) => locker.tryAcquire(name))))
        assert(result.status === 'rejected' && isSpent(result.reason))
      await assert.rejects(locker.tryAcquire('x', { lockDelayMs: 100 }), isSpent)
      await assert.rejects(locker.tryAcquire('x', { mode: 'shared' }), isSpent)
      for (const name of ['x', 'a', 'b']) assert.equal(await locker.inspect(name), null)
      assert.equal(
        await redisCall(marked, 'GET', 'holdfast:token'),
        mark,
        'it is left for the operator to see',
      )
      // The remedy that the error names.
      await redisCall(marked, 'DEL', 'holdfast:token')
      const next = await rig.fenced(marked.url, { backend: { epoch: 1 } })
      assert((await tokenOf(next)) > 4503599627370495n)
    },
  )

  test('G2 G11 the last token that can be drawn is drawn once', async () => {
    await using rig = new Rig()
    const locker = await rig.fenced(marked.url)
    await redisCall(marked, 'SET', 'holdfast:token', '4503599627370493')
    assert.equal(await tokenOf(locker), 4503599627370494n)
    assert.equal(await tokenOf(locker), 4503599627370495n)
    await assert.rejects(locker.tryAcquire('x'), (error) => isHoldfastError(error, 'UNSUPPORTED'))
  })

  test('G2 G11 requests that travel together do not get beyond the last token that can be drawn', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(marked.url, { backend: { fencing: 'clock-backed' } })
    const session = await backend.openSession({ id: newSessionId(), ttlMs: 60_000, holder: 'ada' }, call())
    await redisCall(marked, 'SET', 'holdfast:token', '4503599627370490')
    // There is room for five.
    const results = await Promise.allSettled(
      Array.from({ length: 21 }, (_, index) => session.tryAcquire(request(`batch ${index}`), call())),
    )
    for (const result of results)
      if (result.status === 'rejected') assert(isHoldfastError(result.reason, 'UNSUPPORTED'))
      else assert(result.value.kind === 'granted' && (result.value.grant.token ?? 0n) <= 4503599627370495n)
    assert(results.filter(({ status }) => status === 'rejected').length >= 16)
    assert(Number(await redisCall(marked, 'GET', 'holdfast:token')) <= 4503599627370495)
  })

  test('G2 G11 a server’s clock that is beyond the largest token grants nothing', async () => {
    const clock = createClock()
    await using server = await startRedis({ clock })
    await using rig = new Rig()
    const locker = await rig.fenced(server.url)
    // The year 2120; the largest token is a time in 2112.
    clock.step(94 * 365 * 86_400_000)
    await assert.rejects(locker.tryAcquire('x'), (error) => isHoldfastError(error, 'UNSUPPORTED'))
    await assert.rejects(locker.tryAcquire('x', { mode: 'shared' }), (error) =>
      isHoldfastError(error, 'UNSUPPORTED'),
    )
  })

  test('G2 G11 on a Cluster, a mark that nothing can be added to stops its own name only', async () => {
    const cluster = await startRedisCluster()
    const { client, close } = await libraryNamed('ioredis 6').openCluster(clusterUrls(cluster))
    try {
      const key = (name: string) => `{one-slot}:${name}`
      await using locker = createLocker(
        openRedis({ client, fencing: 'clock-backed', issuer: 'cluster', key }),
      )
      const ioredis = client as unknown as { call(command: string, ...args: string[]): Promise<unknown> }
      for (const mark of unusableMarks) {
        await ioredis.call('SET', '{one-slot}:x:t', mark)
        const isSpent = (error: unknown) =>
          isHoldfastError(error, 'UNSUPPORTED') && /followed by :t.*higher epoch/s.test(error.message)
        await assert.rejects(locker.tryAcquire('x'), isSpent)
        await assert.rejects(locker.tryAcquire('x', { mode: 'shared' }), isSpent)
        assert.equal(await locker.inspect('x'), null)
        const other = await locker.acquire('y')
        assert.equal(await other.release(), 'released')
      }
    } finally {
      close()
      await cluster.stop()
    }
  })

  test('T103 G11 a grant without a token, by a process without `fencing`, fails its waiter and nothing else', async () => {
    await using rig = new Rig()
    const open = async (backend: object) =>
      (await rig.backend(marked.url, { backend: { namespace: 'mixed', ...backend } })).openSession(
        { id: newSessionId(), ttlMs: 60_000, holder: 'ada' },
        call(),
      )
    const [fenced, unfenced] = [await open({ fencing: 'clock-backed' }), await open({})]
    const grantOf = async (session: typeof fenced, name: string) => {
      const answer = await session.tryAcquire(request(name), call())
      assert(answer.kind === 'granted')
      return answer.grant
    }
    const [held, other] = [await grantOf(unfenced, 'x'), await grantOf(fenced, 'other')]
    let queued = 0
    const waiting = enqueued(fenced, request('x'), callWith(undefined, { queued: () => queued++ }))
    const refused = assert.rejects(Promise.resolve(waiting), (error) => {
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown', String(error))
      assert.match(error.message, /no fencing token.*all processes of a namespace/)
      return true
    })
    await until('it waits', () => queued === 1)
    assert.equal(await unfenced.release(held, { keepForMs: 0 }, call()), 'released')
    await refused
    const kept = await fenced.keepAlive({ held: [other], waiting: [] }, call())
    assert(kept.kind === 'alive' && kept.lost.length === 0)
  })

  test('T37 the token is drawn with the grant: of two that race, the later one has the higher token', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const lockers = [await rig.fenced(server.url), await rig.fenced(server.url)]
    let last = 0n
    const compete = async (locker: Locker<'fenced'>) => {
      for (let turns = 0; turns < 50; turns++)
        await locker.withLease('x', async (lease) => {
          // Exclusion makes the order in which holders get here the order of their grants.
          assert(lease.fence.token > last)
          last = lease.fence.token
        })
    }
    await Promise.all(lockers.map(compete))
  })

  test('T9 G5 when the server’s clock is stepped there may be two believers, and the guard refuses the older', async () => {
    const clock = createClock()
    await using server = await startRedis({ clock })
    await using rig = new Rig()
    const guard = memoryGuard<string>()
    const first = await (await rig.fenced(server.url)).acquire('x', { ttlMs: 60_000 })
    await guard.run(first, (tx) => tx.set('x', 'first'))
    clock.step(3_600_000)
    const second = await (await rig.fenced(server.url)).acquire('x', { ttlMs: 60_000 })
    assert.equal(first.state, 'held', 'the first believes: its own clocks have not moved')
    assert(second.fence.token > first.fence.token)
    await guard.run(second, (tx) => tx.set('x', 'second'))
    const stale = guard.run(first, (tx) => tx.set('x', 'stale'))
    await assert.rejects(stale, (error) => isHoldfastError(error, 'FENCE_STALE'))
    assert.equal(guard.resource.get('x'), 'second')
    held.push(first, second)
  })

  test('T9 G2 when the server’s clock goes back, tokens go on increasing, and it is told', async () => {
    const clock = createClock()
    await using server = await startRedis({ clock })
    await using rig = new Rig()
    const warnings: string[] = []
    const stop = onEvent('warning', ({ warning }) => warnings.push(warning))
    const locker = await rig.fenced(server.url)
    const before = await tokenOf(locker)
    clock.step(-3_600_000)
    const after = await tokenOf(locker)
    stop()
    assert(after > before)
    assert(warnings.some((warning) => /clock is \d+ ms behind the last token/.test(warning)))
  })
})

function frozen() {
  const clock = createClock()
  clock.freeze()
  return clock
}
