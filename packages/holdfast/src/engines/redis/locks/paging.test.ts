/** Lists in pages: each costs one step of SCAN, and together they have every name. */
import assert from 'node:assert/strict'
import {
  connectRedis,
  type RespClient,
  redisCall,
  type Server,
  startRedis,
  startRedisCluster,
  wanted,
} from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { libraryNamed } from '../../../../test/redis/clients.ts'
import { Rig } from '../../../../test/redis/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { publicIdOf, systemRandom } from '../../../base/ids.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import type { Backend, NameState, Page } from '../../../spi.ts'
import { openRedis } from './assemble.ts'

/** KEYS the first part of the lock keys; ARGV from, to: exclusive holders of names with these numbers. */
const fill = `
for number = ARGV[1], ARGV[2] do
  local who = string.format('%022d.%s|%s', number, string.rep('x', 22), string.rep('s', 22))
  redis.call('SET', KEYS[1] .. string.format('%05d}', number), 'hf1|' .. who .. '|0|60000|["h"]||1.1', 'PX', 600000)
end`

const nameOf = (number: number) => `name/${String(number).padStart(5, '0')}`

async function* pagesOf(backend: Backend, limit: number): AsyncGenerator<Page<NameState>> {
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await backend.list('name/', { limit, ...(cursor !== undefined && { cursor }) }, callWith())
    assert(page.items.length <= limit)
    yield page
    cursor = page.next
  }
}

describe.runIf(wanted('redis'))('pages on one server', () => {
  let server: Server
  let wire: RespClient
  beforeAll(async () => {
    server = await startRedis()
    wire = await connectRedis(server)
  })
  beforeEach(() => wire.call('FLUSHALL'))
  afterAll(async () => {
    wire?.close()
    await server?.stop()
  })

  const hold = (from: number, to: number) => wire.call('EVAL', fill, 1, 'holdfast:default:{name/', from, to)

  test('T82 a list of 50,000 names has all of them', async () => {
    await hold(1, 50_000)
    await using rig = new Rig()
    const locker = await rig.locker(server.url)
    const names = (await locker.list('name/')).map(({ name }) => name)
    assert.equal(names.length, 50_000)
    assert.deepEqual([names[0], names.at(-1)], [nameOf(1), nameOf(50_000)])
  })

  test('T82 a page costs the same however many names there are', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const costWith = async (names: number) => {
      await hold(1, names)
      const count = async (command: string) => {
        const report = String(await wire.call('INFO', 'commandstats'))
        return Number(new RegExp(`^cmdstat_${command}:calls=(\\d+)`, 'm').exec(report)?.[1] ?? 0)
      }
      const before = await count('scan')
      const { items } = await backend.list('name/', { limit: 1_000 }, callWith())
      assert(items.length < 1_000)
      return (await count('scan')) - before
    }
    assert.equal(await costWith(2_000), 1)
    assert.equal(await costWith(20_000), 1)
  })

  test.each([1, 2, 5])(
    'pages of %i name have every name, although a step of SCAN finds more',
    async (limit) => {
      await hold(1, 300)
      await using rig = new Rig()
      const backend = await rig.backend(server.url)
      const seen = new Set<string>()
      for await (const { items } of pagesOf(backend, limit)) for (const { name } of items) seen.add(name)
      assert.equal(seen.size, 300)
    },
  )

  test('names that are in use from the first page to the last are listed while the keys grow and shrink', async () => {
    await hold(1, 200)
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    const seen = new Set<string>()
    let pages = 0
    for await (const { items } of pagesOf(backend, 2)) {
      for (const { name } of items) seen.add(name)
      pages++
      if (pages === 20) await hold(1_000, 4_000)
      if (pages === 60)
        for (let number = 1_000; number <= 4_000; number++)
          await wire.call('DEL', `holdfast:default:{${nameOf(number)}}`)
    }
    for (let number = 1; number <= 200; number++) assert(seen.has(nameOf(number)), nameOf(number))
  })

  test('G12 a cursor that is none is refused', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    for (const cursor of ['x', '7', '["",7', '["","seven"]', '{}'])
      for (const read of [
        backend.list('', { cursor, limit: 10 }, callWith()),
        backend.sessions?.({ cursor, limit: 10 }, callWith()),
      ])
        await assert.rejects(
          async () => read,
          (error) => isHoldfastError(error, 'INVALID_ARGUMENT'),
        )
  })

  test('a name is listed for its lock, its waiters or its data, and not for what outlives them', async () => {
    await using rig = new Rig()
    const backend = await rig.backend(server.url)
    for (const suffix of [':x:an.attempt|a session', ':x:an.attempt|a session:why', ':t'])
      await wire.call('SET', `holdfast:default:{over}${suffix}`, '1')
    await wire.call('HSET', 'holdfast:default:{data}:s', 'd', 'left behind')
    const listed = await listAll(backend, '', callWith())
    assert.deepEqual(
      listed.map(({ name, data }) => [name, data]),
      [['data', 'left behind']],
    )
  })

  test('sessions are listed also with keys of the user’s own, and without those of Redlock', async () => {
    await using rig = new Rig()
    const options = { client: { keyPrefix: 'app:' }, backend: { key: (name: string) => `lock:${name}` } }
    const backend = await rig.backend(server.url, options)
    const id = systemRandom.id() + systemRandom.id()
    await backend.openSession({ id, ttlMs: 60_000, holder: 'ada' }, callWith())
    await wire.call('HSET', `app:holdfast:default:session:${systemRandom.id()}`, 'ttl', '1000')
    const { items, next } = (await backend.sessions?.({ limit: 10 }, callWith())) ?? {}
    assert.deepEqual(
      items?.map(({ id, holder, ttlMs }) => ({ id, holder, ttlMs })),
      [{ id: publicIdOf(id), holder: 'ada', ttlMs: 60_000 }],
    )
    assert.equal(next, null)
  })
})

describe.runIf(wanted('redis'))('pages of a Cluster', () => {
  test('a cursor names its node; if that is no primary any more, the list must begin again', async () => {
    await using cluster = await startRedisCluster()
    const urls = cluster.members.map(({ host, port }) => `redis://${host}:${port}`)
    const { client, close } = await libraryNamed('ioredis 6').openCluster(urls)
    await using backend = openRedis({ client })
    for (const member of cluster.members)
      for (let number = 0; number < 10; number++)
        await redisCall(member, 'SET', `holdfast:default:{name/${number}}`, 'x').catch(() => {})
    const nodes = new Set<string>()
    const seen = new Set<string>()
    for await (const { items, next } of pagesOf(backend, 2)) {
      for (const { name } of items) seen.add(name)
      if (next !== null) nodes.add(String(JSON.parse(next)[0]))
    }
    assert.equal(seen.size, 10)
    assert.equal(nodes.size, 3)
    await assert.rejects(
      backend.list('', { cursor: '["10.0.0.1:7000","0"]', limit: 10 }, callWith()),
      (error) =>
        isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.retryable && /first page/.test(error.message),
    )
    close()
  })
})
