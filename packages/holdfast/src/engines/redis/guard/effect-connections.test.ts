/** An effect is sent once, and not applied after it was given up, with every client library: on real servers, behind a proxy. */
import assert from 'node:assert/strict'
import { isDeepStrictEqual } from 'node:util'
import { FaultyProxy, startProxy } from 'holdfast-lab/faults'
import {
  type Cluster,
  redisCall,
  type Server,
  startRedis,
  startRedisCluster,
  wanted,
} from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import {
  type ClientLibrary,
  libraries,
  libraryNamed,
  type OpenedClient,
} from '../../../../test/redis/clients.ts'
import { clusterUrls } from '../../../../test/redis/guard-world.ts'
import { type Fence, makeFence } from '../../../base/fence.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { slotOf } from '../client/index.ts'
import { type RedisGuard, redisGuard } from './redis-guard.ts'

describe.runIf(wanted('redis'))('effects of a Redis guard', () => {
  let server: Server
  const opened: OpenedClient[] = []
  beforeAll(async () => {
    server = await startRedis()
  })
  afterEach(() => {
    for (const each of opened.splice(0)) each.close()
  })
  afterAll(() => server?.stop())

  async function open(library: ClientLibrary, through?: FaultyProxy): Promise<OpenedClient['client']> {
    const client = await library.open(through ? `redis://${through.host}:${through.port}` : server.url)
    opened.push(client)
    return client.client
  }

  const stored = (key: string) => redisCall(server, 'GET', key)

  describe.each(libraries)('with $name', (library) => {
    test.each([
      { atOnce: 1, guards: 1 },
      { atOnce: 2, guards: 1 },
      { atOnce: 3, guards: 1 },
      { atOnce: 10, guards: 1 },
      { atOnce: 2, guards: 2 },
      { atOnce: 10, guards: 2 },
    ])(
      'T73 $atOnce at once by $guards guards, answers lost and connection cut: each is applied once',
      async (sent) => {
        await using proxy = await startProxy(server)
        const key = `cut ${library.name} ${sent.atOnce} ${sent.guards}`
        const client = await open(library, proxy)
        const guards = Array.from({ length: sent.guards }, () => redisGuard({ client, tag: key }))
        const fence = fenceOf(1n)
        for (const guard of guards) await guard.increment(fence, key, 0)

        proxy.drop('down')
        const running = Promise.allSettled(
          Array.from({ length: sent.atOnce }, (_, index) =>
            guards[index % guards.length]?.increment(fence, key),
          ),
        )
        await until(
          async () => proxy.swallowedBytes('down') > 0 && (await stored(key)) === String(sent.atOnce),
        )
        proxy.heal()
        for (const { status, reason } of (await running) as PromiseRejectedResult[]) {
          assert.equal(status, 'rejected')
          assert.deepEqual([reason.code, reason.outcome], ['BACKEND_UNAVAILABLE', 'unknown'])
        }
        // This one comes after whatever the library has sent again.
        assert.equal(await guards[0]?.get(fence, key), String(sent.atOnce))
      },
    )

    test('T73 every form of an effect whose answer is lost is applied once, and told as unknown', async () => {
      await using proxy = await startProxy(server, { label: nextLabel() })
      const key = `again ${library.name}`
      const fence = fenceOf(1n)
      const formsOf = (
        guard: RedisGuard,
        key: string,
      ): readonly [form: () => Promise<unknown>, after: unknown][] => [
        [() => guard.set(fence, key, '5'), ['5', null, []]],
        [() => guard.increment(fence, key, 10), ['15', null, []]],
        [() => guard.evaluate(fence, PUSH, { keys: [`${key} list`], args: ['a'] }), ['15', null, ['a']]],
        [() => guard.run(fence, (tx) => tx.set(key, '160')), ['160', null, ['a']]],
        [() => guard.transaction((tx) => tx.set(`${key} plain`, 'x')), ['160', 'x', ['a']]],
        [() => guard.delete(fence, `${key} plain`), ['160', null, ['a']]],
      ]
      // Now the server knows the scripts, and one answer is all that can be lost.
      const warm = `warm ${library.name}`
      for (const [form] of formsOf(redisGuard({ client: await open(library), tag: warm }), warm)) await form()

      const guard = redisGuard({ client: await open(library, proxy), tag: key })
      const state = async () => [
        await stored(key),
        await stored(`${key} plain`),
        await redisCall(server, 'LRANGE', `${key} list`, 0, -1),
      ]
      // The client's own came first.
      const isOurs = ({ label }: { readonly label: string }) => label !== '1'
      for (const [form, after] of formsOf(guard, key)) {
        await guard.get(fence, key)
        proxy.drop('down', isOurs)
        const lost = assert.rejects(form(), { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
        await until(async () => isDeepStrictEqual(await state(), after))
        proxy.heal()
        await lost
        // This one comes after whatever the library has sent again.
        await guard.get(fence, key)
        assert.deepEqual(await state(), after)
      }
    })
  })

  const library = libraryNamed('ioredis 6')
  const otherLibrary = libraryNamed('node-redis 6')

  test('T73 G11 a call that was refused, or failed, is unknown when its answer is lost, and has changed nothing', async () => {
    await using proxy = await startProxy(server)
    const guard = redisGuard({ client: await open(library, proxy), tag: 'refused' })
    const fence = fenceOf(1n)
    await guard.set(fence, 'refused', 'text')
    const other = redisGuard({ client: await open(library), tag: 'refused' })

    const lost = async (call: () => Promise<unknown>) => {
      proxy.drop('down')
      const running = call()
      void running.catch(() => {})
      await until(() => proxy.swallowedBytes('down') > 0)
      proxy.heal()
      return running
    }
    const failing = () => guard.evaluate(fence, "error('planted')")
    await assert.rejects(failing, { code: 'INVALID_ARGUMENT' })
    await assert.rejects(lost(failing), { outcome: 'unknown' })
    await other.set(fenceOf(2n), 'refused', 'newer')
    const stale = () => guard.set(fence, 'refused', 'stale')
    await guard.get(fenceOf(2n), 'refused')
    await assert.rejects(lost(stale), { outcome: 'unknown' })
    await assert.rejects(stale, { code: 'FENCE_STALE' })
    assert.equal(await stored('refused'), 'newer')
  })

  test('T15 T73 T76 a call that was given up does not land later', async () => {
    await using proxy = await startProxy(server)
    const clock = createFakeClock()
    const client = await open(library, proxy)
    const guard = redisGuard({ client, tag: 'late', clock, callTimeoutMs: 1_000 })
    const fence = fenceOf(1n)
    await guard.increment(fence, 'late', 0)

    const copy = proxy.record()
    proxy.drop('up')
    const givenUp = assert.rejects(guard.increment(fence, 'late'), { outcome: 'unknown' })
    await until(() => proxy.swallowedBytes('up') > 0)
    copy.end()
    await clock.advance(1_000)
    await givenUp
    const givenUpAtMs = await serverMs()
    proxy.heal()
    // The server's clock is a real one.
    await until(async () => (await serverMs()) > givenUpAtMs + 1_000)
    await copy.replay()
    assert.equal(await stored('late'), '0')
    assert.equal(await guard.increment(fence, 'late'), 1n)
  })

  test.each(libraries)(
    'T16 T73 a connection on which an effect was not answered is not used again: $name',
    async (each) => {
      await using proxy = await startProxy(server, { label: nextLabel() })
      const clock = createFakeClock()
      const key = `silent ${each.name}`
      const client = await open(each, proxy)
      const guard = redisGuard({ client, tag: key, clock, callTimeoutMs: 1_000 })
      const fence = fenceOf(1n)
      await guard.increment(fence, key, 0)
      assert.equal(proxy.connections, 2, 'the one of the client, and one for effects')

      // From now on, the connection for effects is silent for ever.
      proxy.drop('down', ({ label }) => label === '2')
      const givenUp = assert.rejects(guard.increment(fence, key), { outcome: 'unknown' })
      await until(async () => (await stored(key)) === '1')
      await clock.advance(1_000)
      await givenUp
      const next = guard.increment(fence, key)
      next.catch(() => {})
      await until(() => proxy.connections === 3)
      assert.equal(await next, 2n)
    },
  )

  test('a server whose clock is set forward refuses an effect; the clocks are compared again, and it is applied', async () => {
    const clock = createFakeClock()
    const guard = redisGuard({ client: await open(library), tag: 'ahead', clock, callTimeoutMs: 1_000 })
    const fence = fenceOf(1n)
    await guard.increment(fence, 'ahead')
    // The server's clock goes on, and the guard's does not.
    const nowMs = await serverMs()
    await until(async () => (await serverMs()) > nowMs + 1_200)
    assert.equal(await guard.increment(fence, 'ahead'), 2n)
  })

  test('all guards of a client share one connection, which is closed when it is idle', async () => {
    await using proxy = await startProxy(server)
    const clock = createFakeClock()
    const client = await open(library, proxy)
    const guards = Array.from({ length: 20 }, (_, index) =>
      redisGuard({ client, tag: `shared ${index}`, clock }),
    )
    await Promise.all(guards.map((guard) => guard.set(fenceOf(1n), 'shared', 'x')))
    assert.equal(proxy.connections, 2)
    await clock.advance(20_000)
    await guards[0]?.set(fenceOf(1n), 'shared', 'y')
    await clock.advance(20_000)
    assert.equal(proxy.connections, 2)
    await clock.advance(40_000)
    await until(() => proxy.connections === 1)
    await guards[0]?.set(fenceOf(1n), 'shared', 'z')
    assert.equal(await stored('shared'), 'z')
  })

  test.each(libraries)(
    'T52 after a select of the client, effects are refused, and do not go to another database: $name',
    async ({ name, open: openClient }) => {
      const opening = await openClient(server.url)
      opened.push(opening)
      const client = opening.client as typeof opening.client & { select(database: number): Promise<unknown> }
      const guard = redisGuard({ client, tag: `database ${name}` })
      await guard.set(fenceOf(1n), `database ${name}`, 'before')
      await client.select(3)
      const other = redisGuard({ client, tag: `database ${name}`, clock: createFakeClock() })
      await assert.rejects(other.set(fenceOf(1n), `database ${name}`, 'after'), {
        outcome: 'not-applied',
        message: /another server or database/,
      })
      // Keys in the first database are not touched.
      assert.equal(await stored(`database ${name}`), 'before')
    },
  )

  test.each(libraries)(
    'T52 effects follow the client to another primary, also while the old one goes on: $name',
    async (each) => {
      await using other = await startRedis()
      const target = { host: server.host, port: server.port }
      await using proxy = await new FaultyProxy(target, { label: nextLabel() }).listen()
      const guard = redisGuard({ client: await open(each, proxy), tag: 'moved' })
      const key = `fail-over ${each.name}`
      await guard.set(fenceOf(1n), key, 'before')
      // The address leads to another server from now on, and only the connection of the client, the first, is cut.
      target.port = other.port
      proxy.reset(({ label }) => label === '1')
      await until(() =>
        guard.highest('n').then(
          (fence) => fence === null,
          () => false,
        ),
      )
      await guard.set(fenceOf(2n), key, 'after')
      assert.deepEqual([await stored(key), await redisCall(other, 'GET', key)], ['before', 'after'])
    },
  )

  test('a connection that several calls wait for is opened although the first of them gives up', async () => {
    await using proxy = await startProxy(server, { label: nextLabel() })
    const clock = createFakeClock()
    const client = await open(library, proxy)
    const guardFor = (callTimeoutMs: number) => redisGuard({ client, tag: 'opening', clock, callTimeoutMs })
    const [hasty, patient] = [guardFor(100), guardFor(5_000)]
    // Their first reads go over the connection of the client.
    for (const guard of [hasty, patient]) await guard.highest('n')
    proxy.hold('down', ({ label }) => label !== '1')
    const first = assert.rejects(hasty.set(fenceOf(1n), 'opening', 'x'), { outcome: 'not-applied' })
    const second = patient.set(fenceOf(1n), 'opening', 'y')
    await until(() => proxy.connections === 2)
    await clock.advance(100)
    await first
    proxy.heal()
    await second
    assert.deepEqual([await stored('opening'), proxy.connections], ['y', 2])
  })

  test.each(libraries)('T52 effects follow a slot to another primary of the Cluster: $name', async (each) => {
    const cluster = await startRedisCluster()
    try {
      const client = await each.openCluster(clusterUrls(cluster))
      opened.push(client)
      const guard = redisGuard({ client: client.client, tag: 'moving' })
      const fence = fenceOf(1n)
      await guard.set(fence, '{moving}', '1')
      await moveSlot(cluster, slotOf('{moving}'))
      assert.equal(await guard.increment(fence, '{moving}'), 2n)
      assert.equal((await guard.highest('n'))?.token, 1n)
    } finally {
      await cluster.stop()
    }
  })

  test('T73 a server that has lost its data is gone on with', async () => {
    const own = await startRedis()
    const client = await library.open(own.url)
    const newGuard = () => redisGuard({ client: client.client, tag: 'flushed' })
    const [guard, other] = [newGuard(), newGuard()]
    const fence = fenceOf(1n)
    for (let times = 0; times < 3; times++) {
      await redisCall(own, 'FLUSHALL')
      assert.equal(await other.increment(fence, 'flushed'), 1n)
      const values = [guard.increment(fence, 'flushed'), guard.increment(fence, 'flushed')]
      assert.deepEqual(new Set(await Promise.all(values)), new Set([2n, 3n]))
      await guard.run(fence, (tx) => tx.increment('flushed'))
      assert.equal(await guard.get(fence, 'flushed'), '4')
    }
    client.close()
    await own.stop()
  })

  test('T73 an outage in which thousands of calls were given up, and never arrived, is gone on from', async () => {
    await using proxy = await startProxy(server)
    const clock = createFakeClock()
    const client = await open(otherLibrary, proxy)
    const guard = redisGuard({ client, tag: 'outage', clock, callTimeoutMs: 500 })
    const fence = fenceOf(1n)
    await guard.increment(fence, 'outage')
    proxy.drop('up')
    for (let wave = 0; wave < 6; wave++) {
      const calls = Array.from({ length: 1_900 }, () => guard.increment(fence, 'outage'))
      const settled = Promise.allSettled(calls)
      const before = proxy.swallowedBytes('up')
      await until(() => proxy.swallowedBytes('up') > before)
      await clock.advance(500)
      assert((await settled).every(({ status }) => status === 'rejected'))
    }
    proxy.heal()
    await until(() => guard.get(fence, 'outage').then(Boolean, () => false))
    const value = Number(await stored('outage'))
    assert.equal(await guard.increment(fence, 'outage'), BigInt(value + 1))
  })

  async function serverMs(): Promise<number> {
    const [seconds, micros] = (await redisCall(server, 'TIME')) as [string, string]
    return Number(seconds) * 1_000 + Number(micros) / 1_000
  }
})

/** Numbers the connections of a proxy: the first is the client's own. */
function nextLabel(): () => string {
  let connections = 0
  return () => String(++connections)
}

const PUSH = "return redis.call('RPUSH', KEYS[1], ARGV[1])"

const fenceOf = (token: bigint): Fence =>
  makeFence({ issuer: 'i', name: 'n', mode: 'exclusive', token, grant: `g${token}` })

/** Gives a slot, with its keys, to another primary. */
async function moveSlot(cluster: Cluster, slot: number): Promise<void> {
  const counts = await Promise.all(
    cluster.members.map(async (member) =>
      Number(await redisCall(member, 'CLUSTER', 'COUNTKEYSINSLOT', slot)),
    ),
  )
  const from = cluster.members[counts.findIndex((count) => count > 0)] as Server
  const to = cluster.members[counts.indexOf(0)] as Server
  const idOf = async (member: Server) => String(await redisCall(member, 'CLUSTER', 'MYID'))
  await redisCall(to, 'CLUSTER', 'SETSLOT', slot, 'IMPORTING', await idOf(from))
  await redisCall(from, 'CLUSTER', 'SETSLOT', slot, 'MIGRATING', await idOf(to))
  for (const key of (await redisCall(from, 'CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[])
    await redisCall(from, 'MIGRATE', to.host, to.port, key, 0, 5_000)
  for (const member of [to, ...cluster.members.filter((each) => each !== to)])
    await redisCall(member, 'CLUSTER', 'SETSLOT', slot, 'NODE', await idOf(to))
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let turns = 0; !(await holds()); turns++) {
    assert(turns < 24_000, 'not within 120 s')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
