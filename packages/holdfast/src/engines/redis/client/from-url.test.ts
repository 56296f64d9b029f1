/** `redis://`: which client is made of it, and what is said when it cannot be. */
import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { startProxy } from 'holdfast-lab/faults'
import {
  type Cluster,
  redisCall,
  type Server,
  startPostgres,
  startRedis,
  startRedisCluster,
  wanted,
} from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { until } from '../../../../test/redis/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { openLocker } from '../../../open.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { type RedisLibraries, redisClientFromUrl } from './from-url.ts'

const missing = () => Promise.reject(Object.assign(new Error('not there'), { code: 'ERR_MODULE_NOT_FOUND' }))
const both: RedisLibraries = { ioredis: () => import('ioredis'), redis: () => import('redis') }
const onlyNodeRedis: RedisLibraries = { ...both, ioredis: missing }

describe.runIf(wanted('redis'))('redis from a URL', () => {
  let server: Server
  let cluster: Cluster
  beforeAll(async () => {
    ;[server, cluster] = await Promise.all([startRedis(), startRedisCluster()])
  })
  afterAll(async () => {
    await Promise.all([server?.stop(), cluster?.stop()])
  })

  test.each([
    ['redis://127.0.0.1:99999', /port from 1 to 65535/],
    ['redis://127.0.0.1:abc', /port from 1 to 65535/],
    ['redlock://127.0.0.1:99999,127.0.0.1:2,127.0.0.1:3', /port from 1 to 65535/],
    ['redis://u:p%zz@127.0.0.1:1', /write it as %25/],
  ])('G11 a URL that cannot be read is refused, with what to write: %s', async (url, expected) => {
    await assert.rejects(openLocker(url), (error) => {
      assert(isHoldfastError(error, 'INVALID_ARGUMENT'), String(error))
      assert.match(error.message, expected)
      assert.doesNotMatch(inspect(error), /zz/)
      return true
    })
  })

  test('openLocker connects, keeps to database and options, and closes what it opened', async () => {
    const locker = await openLocker(`${server.url}/2?fencing=clock-backed&issuer=shop&namespace=a`, {
      require: ['fenced', 'cluster'],
    })
    assert.equal(locker.info.issuer, 'shop')
    const lease = await locker.acquire('x')
    assert(lease.fence.token > 0n)
    assert.match(String(await redisCall(server, 'INFO', 'keyspace')), /db2:/)
    await lease.release()
    await locker.close()
    const clients = String(await redisCall(server, 'CLIENT', 'LIST'))
      .trim()
      .split('\n')
    assert.equal(clients.length, 1, 'nothing but the one that asks is connected')
  })

  test('several hosts are a Cluster, with either library', async () => {
    const [, location = ''] =
      cluster.url.split(':').length > 1 ? ['', cluster.url.slice('redis:'.length)] : []
    for (const libraries of [both, onlyNodeRedis]) {
      const { client, close } = await redisClientFromUrl('redis', location, libraries)
      assert('slots' in client)
      await close()
    }
    const locker = await openLocker(cluster.url)
    const leases = await Promise.all(['a', 'b', 'c', 'd'].map((name) => locker.acquire(name)))
    for (const lease of leases) assert.equal(await lease.release(), 'released')
    await locker.close()
  })

  test('without ioredis it is node-redis, and without both it is said what to install', async () => {
    const location = server.url.slice('redis:'.length)
    const { client, close } = await redisClientFromUrl('redis', location, onlyNodeRedis)
    assert('evalSha' in client)
    await close()
    await assert.rejects(
      redisClientFromUrl('redis', location, { ioredis: missing, redis: missing }),
      (error) => isHoldfastError(error, 'UNSUPPORTED') && /npm install ioredis/.test(error.message),
    )
  })

  test('G12 a server without tokens is refused where they are required', async () => {
    await assert.rejects(
      openLocker(server.url, { require: 'fenced' }),
      (error) => isHoldfastError(error, 'UNSUPPORTED') && /\?fencing=clock-backed/.test(error.message),
    )
  })

  test('G11 what is wrong with a URL is said without showing it, and so is a server that is not there', async () => {
    const isInvalid = (error: unknown) =>
      isHoldfastError(error, 'INVALID_ARGUMENT') && !/secret/.test(error.message)
    for (const url of [
      'redis:x',
      'redis://',
      'redis://u:secret@',
      'redis://h/x',
      'redis://a,b/3',
      'redis://h?fencing=no',
    ])
      await assert.rejects(openLocker(url), isInvalid, url)
    for (const libraries of [both, onlyNodeRedis])
      await assert.rejects(
        redisClientFromUrl('redis', '//127.0.0.1:1', libraries),
        (error) =>
          isHoldfastError(error, 'BACKEND_UNAVAILABLE') &&
          error.outcome === 'not-applied' &&
          /ECONNREFUSED.*Check that Redis runs, and the host and port in the URL\. /.test(error.message),
      )
  })

  test.runIf(wanted('postgres'))('G11 the port of another kind of server is told as such', async () => {
    await using postgres = await startPostgres()
    for (const libraries of [both, onlyNodeRedis])
      await assert.rejects(
        redisClientFromUrl('redis', `//127.0.0.1:${postgres.port}`, libraries),
        (error) =>
          isHoldfastError(error, 'BACKEND_UNAVAILABLE') &&
          error.outcome === 'not-applied' &&
          /host and port in the URL: what listens there .*may not speak Redis/.test(error.message),
      )
  })

  test('G12 a database that the server does not have is refused, with either library', async () => {
    const location = `${server.url.slice('redis:'.length)}/99`
    for (const libraries of [both, onlyNodeRedis])
      await assert.rejects(
        redisClientFromUrl('redis', location, libraries),
        (error) =>
          isHoldfastError(error, 'UNSUPPORTED') &&
          /out of range.*Choose a database that the server has/.test(error.message),
      )
  })

  test('G11 G12 a password that is wrong is told as such, and shown nowhere, with either library', async () => {
    const location = `//nobody:wrong-password@${server.host}:${server.port}`
    for (const libraries of [both, onlyNodeRedis])
      await assert.rejects(redisClientFromUrl('redis', location, libraries), (error) => {
        assert(isHoldfastError(error, 'UNSUPPORTED'), String(error))
        assert.match(error.message, /WRONGPASS.*Give the right user and password/)
        assert(!inspect(error, { depth: 10, showHidden: true }).includes('wrong-password'))
        return true
      })
  })

  test('independent servers are not a Cluster, and it is said what they are', async () => {
    const { host, port } = server
    await assert.rejects(
      redisClientFromUrl('redis', `//${host}:${port},${host}:${port}`, both),
      (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && /redlock:\/\//.test(error.message),
    )
  })

  test('G11 a server that accepts the connection and says nothing is given up after a while, and nothing stays connected', async () => {
    for (const libraries of [both, onlyNodeRedis])
      for (const nodes of [1, 2]) {
        await using proxy = await startProxy(server)
        proxy.hold('down')
        const clock = createFakeClock()
        let told: unknown
        const hosts = Array.from({ length: nodes }, () => `${proxy.host}:${proxy.port}`)
        redisClientFromUrl('redis', `//${hosts}`, libraries, { clock }).catch((error: unknown) => {
          told = error
        })
        await until('it is connecting', () => proxy.connections > 0)
        await clock.advance(10_000)
        await until('it is told', () => told !== undefined)
        assert(isHoldfastError(told, 'BACKEND_UNAVAILABLE'))
        assert.equal(told.outcome, 'not-applied')
        // It would go on with every connection that is still there.
        proxy.heal()
        await until('nothing is connected', () => proxy.connections === 0)
      }
  })
})
