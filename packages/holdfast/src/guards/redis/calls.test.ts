/** An effect that arrives more than once is applied once, with every client library: on real servers, behind a proxy. */
import assert from 'node:assert/strict'
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import {
  type ClientLibrary,
  libraries,
  libraryNamed,
  type OpenedClient,
} from '../../../test/redis/clients.ts'
import { type Fence, makeFence } from '../../base/fence.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { redisGuard } from '../redis.ts'

describe.runIf(wanted('redis'))('calls of a Redis guard', () => {
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

    test('T73 every form of an effect that arrives again, at once or late, in any order, does nothing', async () => {
      await using proxy = await startProxy(server)
      const key = `again ${library.name}`
      const guard = redisGuard({ client: await open(library, proxy), tag: key })
      const fence = fenceOf(1n)
      await guard.set(fence, key, '100')
      const push = (value: string) =>
        guard.evaluate(fence, "return redis.call('RPUSH', KEYS[1], ARGV[1])", {
          keys: [`${key} list`],
          args: [value],
        })
      const forms: (() => Promise<unknown>)[] = [
        () => guard.set(fence, key, '5'),
        () => guard.increment(fence, key, 10),
        () => push('a'),
        () => Promise.all([push('b'), push('c'), guard.increment(fence, key)]),
        () => guard.run(fence, async (tx) => tx.set(key, `${await tx.get(key)}0`)),
        () => guard.transaction((tx) => tx.set(`${key} plain`, 'x')),
        () => guard.delete(fence, `${key} plain`),
      ]
      const copies = []
      for (const form of forms) {
        const copy = proxy.record()
        await form()
        copy.end()
        copies.push(copy)
        await copy.replay()
      }
      const state = async () => [
        await stored(key),
        await stored(`${key} plain`),
        await redisCall(server, 'LRANGE', `${key} list`, 0, -1),
      ]
      const before = await state()
      assert.deepEqual(before, ['160', null, ['a', 'b', 'c']])
      for (const copy of copies.toReversed()) await copy.replay()
      assert.deepEqual(await state(), before)
    })
  })

  const library = libraryNamed('ioredis 6')
  /** This one does not send again what it has written once. */
  const sendsOnce = libraryNamed('node-redis 6')

  test('T73 G11 a transaction that was told as CONFLICT is not applied by a copy, when what it read is back again', async () => {
    await using proxy = await startProxy(server)
    const guard = redisGuard({ client: await open(library, proxy), tag: 'back' })
    await redisCall(server, 'SET', 'back', 'read')
    const copy = proxy.record()
    const run = guard.run(fenceOf(1n), async (tx) => {
      await tx.get('back')
      await redisCall(server, 'SET', 'back', 'other')
      tx.set('back', 'written')
    })
    await assert.rejects(run, { code: 'CONFLICT' })
    await redisCall(server, 'SET', 'back', 'read')
    await copy.replay(hasAnswers(3))
    assert.equal(await stored('back'), 'read')
  })

  test('T73 G11 a call that was refused, or failed, does not become an applied one when its answer is lost', async () => {
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
    await assert.rejects(lost(failing), { outcome: 'unknown', message: /has raised an error/ })
    await other.set(fenceOf(2n), 'refused', 'newer')
    await assert.rejects(
      lost(() => guard.set(fence, 'refused', 'stale')),
      { code: 'FENCE_STALE' },
    )
    assert.equal(await stored('refused'), 'newer')
  })

  test('T15 T73 a call that was given up does not land any more once a later one has', async () => {
    await using proxy = await startProxy(server)
    const clock = createFakeClock()
    const client = await open(sendsOnce, proxy)
    const guard = redisGuard({ client, tag: 'late', clock, callTimeoutMs: 500 })
    const fence = fenceOf(1n)
    await guard.increment(fence, 'late', 0)

    const copy = proxy.record()
    proxy.drop('up')
    const givenUp = assert.rejects(guard.increment(fence, 'late'), { outcome: 'unknown' })
    await until(() => proxy.swallowedBytes('up') > 0)
    copy.end()
    await clock.advance(500)
    await givenUp
    proxy.heal()
    await until(() => guard.get(fence, 'late').then(Boolean, () => false))
    await copy.replay()
    assert.equal(await stored('late'), '0')
  })

  test('T73 a server that has lost its data, and with it the calls that it knew, is gone on with', async () => {
    const own = await startRedis()
    const client = await library.open(own.url)
    const newGuard = () => redisGuard({ client: client.client, tag: 'flushed' })
    const [guard, other] = [newGuard(), newGuard()]
    const fence = fenceOf(1n)
    for (let times = 0; times < 3; times++) {
      await redisCall(own, 'FLUSHALL')
      // The second to come finds series again, but not its own.
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
    const client = await open(sendsOnce, proxy)
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

  test('what is remembered of calls does not grow: not with calls, nor with thousands at once, nor with guards', async () => {
    const client = await open(library)
    const clock = createFakeClock()
    const fence = fenceOf(1n)
    const newGuard = () => redisGuard({ client, tag: 'bounded', clock })
    const fields = async () =>
      Number(await redisCall(server, 'HLEN', 'holdfast:guard:{bounded}:default:calls'))
    const guard = newGuard()
    for (let times = 0; times < 50; times++) await guard.increment(fence, 'bounded')
    const atRest = await fields()
    assert(atRest < 10, `${atRest} fields`)
    await Promise.all(Array.from({ length: 9_000 }, () => guard.increment(fence, 'bounded')))
    assert.equal(await guard.increment(fence, 'bounded'), 9_051n)

    // As if all of that had been long ago.
    const series = 'holdfast:guard:{bounded}:default:series'
    const backdate = async () => {
      for (const id of (await redisCall(server, 'ZRANGE', series, 0, -1)) as string[])
        await redisCall(server, 'ZADD', series, 1, id)
    }
    await backdate()
    for (let count = 0; count < 30; count++) {
      await newGuard().increment(fence, 'bounded')
      await backdate()
    }
    assert((await fields()) < 20, `${await fields()} fields`)
    // Its own is closed by now. Whether this call came before cannot be told, so it is not applied; the next one is.
    await assert.rejects(guard.increment(fence, 'bounded'), {
      code: 'BACKEND_UNAVAILABLE',
      outcome: 'unknown',
    })
    assert.equal(await guard.increment(fence, 'bounded'), 9_082n)
    // A guard does not use one until it is closed.
    await backdate()
    await clock.advance(1_800_000)
    await newGuard().increment(fence, 'bounded')
    assert.equal(await guard.increment(fence, 'bounded'), 9_084n)
  })
})

const fenceOf = (token: bigint): Fence =>
  makeFence({ issuer: 'i', name: 'n', mode: 'exclusive', token, grant: `g${token}` })

/** Counts what cannot be within an answer: each of these scripts answers with an array, at the start of a line. */
function hasAnswers(count: number): (answer: Buffer) => boolean {
  return (answer) => (answer.toString().match(/(^|\n)[*$]/g)?.length ?? 0) >= count
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let turns = 0; !(await holds()); turns++) {
    assert(turns < 2_000, 'not within 10 s')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
