/** The guard on real servers: one server and a Cluster, with every client library. */
import assert from 'node:assert/strict'
import {
  type Cluster,
  connectRedis,
  redisCall,
  type Server,
  startRedis,
  startRedisCluster,
  wanted,
} from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { type ClientLibrary, libraries, type OpenedClient } from '../../../../test/redis/clients.ts'
import { clusterUrls, redisGuardWorld } from '../../../../test/redis/guard-world.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { type Fence, makeFence } from '../../../base/fence.ts'
import { describeGuard } from '../../../testing/describe-guard.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { redisGuard } from './redis-guard.ts'

let server: Server
let cluster: Cluster
const opened: OpenedClient[] = []

async function open(library: ClientLibrary, url = server.url): Promise<OpenedClient['client']> {
  const client = await library.open(url)
  opened.push(client)
  return client.client
}

async function openCluster(library: ClientLibrary): Promise<OpenedClient['client']> {
  const client = await library.openCluster(clusterUrls(cluster))
  opened.push(client)
  return client.client
}

const fenceOf = (token: bigint, name = 'n', grant = `g${token}`): Fence =>
  makeFence({ issuer: 'i', name, mode: 'exclusive', token, grant })

describe.runIf(wanted('redis'))('redisGuard on real servers', () => {
  beforeAll(async () => {
    ;[server, cluster] = await Promise.all([startRedis(), startRedisCluster()])
  })
  afterEach(() => {
    for (const each of opened.splice(0)) each.close()
  })
  afterAll(() => Promise.all([server?.stop(), cluster?.stop()]))

  // The other libraries: redis-guard-older.test.ts.
  for (const library of libraries.filter(({ name }) => name.endsWith('6'))) {
    describeGuard({
      name: `redisGuard with ${library.name}`,
      describe,
      test,
      createWorld: () => redisGuardWorld(() => library.open(server.url)),
    })
    describeGuard({
      name: `redisGuard with ${library.name} on a Cluster`,
      describe,
      test,
      createWorld: () => redisGuardWorld(() => library.openCluster(clusterUrls(cluster))),
    })
  }

  describe.each(libraries)('with $name', (library) => {
    test('G5 T41 check and effect are one script: helpers and Lua write for the holder, and nothing for a stale one', async () => {
      const guard = redisGuard({ client: await open(library), tag: `helpers ${library.name}` })
      const key = `helpers:${library.name}`
      const [old, current] = [fenceOf(1n), fenceOf(2n)]
      await guard.set(old, key, '10', { ttlMs: 60_000 })
      assert.equal(await guard.increment(old, key, 5), 15n)
      assert.equal(await guard.get(current, key), '15')
      for (const stale of [
        () => guard.set(old, key, 'stale'),
        () => guard.get(old, key),
        () => guard.increment(old, key),
        () => guard.delete(old, key),
        () => guard.evaluate(old, "return redis.call('DEL', KEYS[1])", { keys: [key] }),
        () => guard.run(old, (tx) => tx.delete(key)),
      ])
        await assert.rejects(stale(), { code: 'FENCE_STALE' })
      const doubled = await guard.evaluate(
        current,
        "local value = redis.call('GET', KEYS[1]) * ARGV[1] redis.call('SET', KEYS[1], value) return {value, ARGV[2]}",
        { keys: [key], args: [2, 'é'] },
      )
      assert.deepEqual(doubled, [30, 'é'])
      assert.equal(await guard.delete(current, [key, `${key}:none`]), 1)
      assert.equal(await guard.get(current, key), null)
    })

    test('T52 on a Cluster keys of another slot are refused, with the tag that they need', async () => {
      const guard = redisGuard({ client: await openCluster(library), name: 'accounts' })
      await guard.set(fenceOf(1n), `{accounts}:${library.name}`, 'here')
      assert.equal(await guard.get(fenceOf(1n), `{accounts}:${library.name}`), 'here')
      await assert.rejects(guard.set(fenceOf(1n), 'elsewhere', 'x'), (error) => {
        assert(isHoldfastError(error, 'INVALID_ARGUMENT'))
        assert.match(error.message, /another slot .* \{accounts\}.*tag: "elsewhere"/)
        return true
      })
      await assert.rejects(
        guard.run(fenceOf(1n), (tx) => tx.set('{other}:x', 'x')),
        { code: 'INVALID_ARGUMENT' },
      )
    })
  })

  const [ioredis] = libraries
  const library = ioredis as ClientLibrary

  test('a lease that has been here before needs one round trip', async () => {
    const guard = redisGuard({ client: await open(library), tag: 'trips' })
    const fence = fenceOf(5n)
    await guard.set(fence, 'trips', '1')
    const before = await scriptCalls(server)
    for (let times = 0; times < 10; times++) await guard.increment(fence, 'trips')
    assert.equal((await scriptCalls(server)) - before, 10)
  })

  test('G5 what another process has let in is noticed, also by a guard that remembers otherwise', async () => {
    const [one, other] = [
      redisGuard({ client: await open(library), tag: 'two' }),
      redisGuard({ client: await open(library), tag: 'two' }),
    ]
    const [old, current] = [fenceOf(1n), fenceOf(2n)]
    await one.set(old, 'two', 'a')
    await other.set(current, 'two', 'b')
    // This one's last knowledge is that 1 is the newest.
    await assert.rejects(one.set(old, 'two', 'stale'), { code: 'FENCE_STALE' })
    assert.equal(await redisCall(server, 'GET', 'two'), 'b')
  })

  test('G5 T41 of two processes that come at once, none passes after a newer one has', async () => {
    const guards = await Promise.all(
      libraries.map(async (each) => redisGuard({ client: await open(each), tag: 'race' })),
    )
    const log: bigint[] = []
    const source = "return redis.call('RPUSH', KEYS[1], ARGV[1])"
    await Promise.all(
      guards.flatMap((guard, index) =>
        Array.from({ length: 25 }, (_, turn) => {
          const token = BigInt(1 + turn * guards.length + index)
          return guard.evaluate(fenceOf(token), source, { keys: ['race'], args: [token] }).catch(() => {})
        }),
      ),
    )
    for (const text of (await redisCall(server, 'LRANGE', 'race', 0, -1)) as string[]) log.push(BigInt(text))
    assert(log.length > 0)
    assert.deepEqual(
      log,
      log.toSorted((a, b) => Number(a - b)),
    )
  })

  test('a transaction whose reads were changed by others is not applied, and says so', async () => {
    const guard = redisGuard({ client: await open(library), tag: 'conflict' })
    await redisCall(server, 'SET', 'conflict', '1')
    const run = guard.run(fenceOf(1n), async (tx) => {
      const value = Number(await tx.get('conflict'))
      await redisCall(server, 'SET', 'conflict', '5')
      tx.set('conflict', String(value + 1))
    })
    await assert.rejects(run, (error) => {
      assert(isHoldfastError(error, 'CONFLICT'))
      assert.match(error.message, /"conflict" has been changed by another/)
      return true
    })
    assert.equal(await redisCall(server, 'GET', 'conflict'), '5')
    assert.equal(await guard.highest('n'), null)
  })

  test('a transaction increments exactly, keeps times to live, and deletes', async () => {
    const guard = redisGuard({ client: await open(library), tag: 'exact' })
    await redisCall(server, 'SET', 'big', '9007199254740993', 'PX', 100_000)
    await redisCall(server, 'SET', 'gone', 'x')
    const value = await guard.run(fenceOf(1n), async (tx) => {
      tx.set('fresh', '7', { ttlMs: 100_000 })
      assert.equal(await tx.increment('fresh', 2n), 9n)
      tx.delete('gone')
      assert.equal(await tx.get('gone'), null)
      await assert.rejects(async () => tx.increment('fresh', 0.5), { code: 'INVALID_ARGUMENT' })
      return tx.increment('big')
    })
    assert.equal(value, 9007199254740994n)
    assert.equal(await redisCall(server, 'GET', 'big'), '9007199254740994')
    for (const key of ['big', 'fresh']) assert(Number(await redisCall(server, 'PTTL', key)) > 0, key)
    assert.equal(await redisCall(server, 'GET', 'gone'), null)
    assert.equal(await guard.increment(fenceOf(1n), 'big', -1n), 9007199254740993n)
  })

  test('G5 what it remembers is as durable as the effect, over a crash with and without persistence', async () => {
    for (const persistence of ['every-write', 'none'] as const) {
      const own = await startRedis({ persistence })
      const guard = redisGuard({ client: await open(library, own.url), tag: 'durable' })
      await guard.set(fenceOf(2n), 'durable', 'kept')
      await own.kill()
      await own.restart()
      const after = redisGuard({ client: await open(library, own.url), tag: 'durable' })
      const isKept = persistence === 'every-write'
      assert.equal(await redisCall(own, 'GET', 'durable'), isKept ? 'kept' : null)
      if (isKept) await assert.rejects(after.get(fenceOf(1n), 'durable'), { code: 'FENCE_STALE' })
      else assert.equal(await after.get(fenceOf(1n), 'durable'), null, 'both are gone together')
      await own.stop()
    }
  })

  test('a server that does not answer is given up at the limit, as unknown', async () => {
    const own = await startRedis()
    const clock = createFakeClock()
    const guard = redisGuard({
      client: await open(library, own.url),
      tag: 'silent',
      clock,
      callTimeoutMs: 500,
    })
    await guard.set(fenceOf(1n), 'silent', 'x')
    await own.pause()
    const isUnknown = { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' }
    const givenUp = assert.rejects(guard.set(fenceOf(1n), 'silent', 'y'), isUnknown)
    await clock.advance(500)
    await givenUp
    await own.resume()
    await own.stop()
  })

  test('what makes no sense is refused before anything is sent', async () => {
    const client = await open(library)
    assert.throws(() => redisGuard({ client: {} as never }), { code: 'INVALID_ARGUMENT' })
    assert.throws(() => redisGuard({ client, tag: 'a{b}' }), /braces/)
    assert.throws(() => redisGuard({ client, callTimeoutMs: 0 }), { code: 'INVALID_ARGUMENT' })
    const guard = redisGuard({ client, tag: 'refusing' })
    const fence = fenceOf(1n)
    const wrong: (() => Promise<unknown>)[] = [
      () => guard.set(fence, '', 'x'),
      () => guard.set(fence, 'k', 5 as never),
      () => guard.set(fence, 'k', 'x', { ttlMs: 0 }),
      () => guard.set(fence, 'k', 'x', { ttl: 5 } as never),
      () => guard.delete(fence, []),
      () => guard.increment(fence, 'k', 0.5),
      () => guard.evaluate(fence, ''),
      () => guard.evaluate(fence, 'return 1', { keys: [''] }),
      () => guard.evaluate(fence, 'return 1', { args: [{} as never] }),
      () => guard.enter({} as never, fence),
    ]
    for (const each of wrong) await assert.rejects(each, { code: 'INVALID_ARGUMENT' })
    const reason = new Error('cancelled')
    await assert.rejects(
      guard.set(fence, 'k', 'x', { signal: AbortSignal.abort(reason) }),
      (error) => error === reason,
    )
    assert.equal(await guard.highest('n'), null)
  })

  test('T42 the floor is exact above 2^53, where a number of Lua’s would take neighbours for one', async () => {
    const guard = redisGuard({ client: await open(library), tag: 'floor' })
    const base = 2n ** 53n
    await guard.get(fenceOf(base, 'a'), 'floor')
    await guard.get(fenceOf(base + 1n, 'b'), 'floor')
    assert.equal(await guard.prune({ untouchedForMs: 0 }), 2)
    await assert.rejects(guard.get(fenceOf(base + 1n, 'c', 'other'), 'floor'), { code: 'FENCE_STALE' })
    await guard.get(fenceOf(base + 2n, 'c'), 'floor')
  })

  test('more names than fit into one call are forgotten in parts, and the floor is the highest of all', async () => {
    const clock = createFakeClock()
    const guard = redisGuard({ client: await open(library), tag: 'many', clock })
    using raw = await connectRedis(server)
    for (let count = 1; count <= 1_200; count++) {
      const record = ['i', 'exclusive', String(count).padStart(19, '0'), `g${count}`, ''].join('\n')
      void raw.call('HSET', 'holdfast:guard:{many}:default:names', `n${count}`, record)
      void raw.call('ZADD', 'holdfast:guard:{many}:default:touched', 1, `n${count}`)
    }
    await raw.call('PING')
    assert.equal(await guard.prune({ untouchedForMs: 0 }), 1_200)
    await assert.rejects(guard.get(fenceOf(1_199n), 'many'), { code: 'FENCE_STALE' })
    assert.equal(await guard.get(fenceOf(1_201n), 'many'), null)
  })
})

/** How many scripts the server has run. */
async function scriptCalls(on: Server): Promise<number> {
  const stats = String(await redisCall(on, 'INFO', 'commandstats'))
  return [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  )
}
