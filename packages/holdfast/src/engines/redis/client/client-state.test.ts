/** Errors about a client that is not connected, is not let in, or was closed: what is the matter, and what to do. */
import assert from 'node:assert/strict'
import { errorMonitor } from 'node:events'
import { inspect } from 'node:util'
import { redisCall, type Server, startPostgres, startRedis, wanted } from 'holdfast-lab/servers'
import { Redis as IoRedis6, Cluster as IoRedisCluster6 } from 'ioredis'
import { Redis as IoRedis5, Cluster as IoRedisCluster5 } from 'ioredis5'
import { createClient as createClient6 } from 'redis'
import { createClient as createClient5 } from 'redis5'
import { afterAll, beforeAll, describe, test, vi } from 'vitest'
import { until } from '../../../../test/redis/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { Backend, Fencing } from '../../../spi.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { redisGuard } from '../guard/redis-guard.ts'
import { openRedis } from '../locks/assemble.ts'
import { openRedlock } from '../redlock/assemble.ts'
import type { RedisClient } from './client.ts'
import { ClientState } from './client-state.ts'

interface Made {
  readonly client: RedisClient
  close(): void
}

/** Each connects by itself, and the connection is not awaited. */
const libraries: readonly { readonly name: string; make(url: string): Made }[] = [
  ...[IoRedis6, IoRedis5 as unknown as typeof IoRedis6].map((Redis, index) => ({
    name: `ioredis ${6 - index}`,
    make(url: string): Made {
      const client = new Redis(url)
      client.on('error', () => {})
      return { client, close: () => client.disconnect() }
    },
  })),
  ...[createClient6, createClient5 as unknown as typeof createClient6].map((createClient, index) => ({
    name: `node-redis ${6 - index}`,
    make(url: string): Made {
      const client = createClient({ url })
      client.on('error', () => {})
      client.connect().catch(() => {})
      return { client: client as RedisClient, close: () => client.isOpen && client.destroy() }
    },
  })),
]

const NOBODY_THERE = 'redis://127.0.0.1:1'
const DOWN =
  /the client is not connected \(.*ECONNREFUSED[^)]*\)\. Check that Redis runs, and the host and port of the client/

/** Of those that the libraries themselves do not come and go with. */
function listenersOf(client: RedisClient): number[] {
  const emitter = client as unknown as { listenerCount(event: string | symbol): number }
  return [errorMonitor, 'error', 'end'].map((event) => emitter.listenerCount(event))
}

/** The failure of an acquire that would wait for long. */
async function failureOfAcquire(backend: Backend<Fencing>): Promise<Error> {
  const locker = createLocker(backend, { callTimeoutMs: 20_000 })
  try {
    return await locker.acquire('x', { waitMs: 60_000 }).then(
      () => assert.fail('it was granted'),
      (error: Error) => error,
    )
  } finally {
    await locker.close({ graceMs: 0 })
  }
}

describe.runIf(wanted('redis'))('a client in trouble', () => {
  let server: Server
  beforeAll(async () => {
    server = await startRedis()
    await redisCall(server, 'ACL', 'SETUSER', 'reader', 'on', '>p', '~*', '&*', '+@all', '-evalsha', '-eval')
  })
  afterAll(() => server?.stop())

  const urlOf = (credentials: string, database = '') =>
    `${server.url.replace('redis://', `redis://${credentials}`)}${database}`

  describe.each(libraries)('$name', ({ make }) => {
    test('T51 G11 a server that is not there is told in the words of the client, and no listener is left', async () => {
      const { client, close } = make(NOBODY_THERE)
      const before = listenersOf(client)
      const error = await failureOfAcquire(openRedis({ client }))
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'), String(error))
      assert.match(error.message, DOWN)
      assert.match(inspect(error.cause), /ECONNREFUSED/)
      assert.equal(error.outcome, 'not-applied')
      assert.deepEqual(listenersOf(client), before)
      close()
    })

    test('G11 a guard that gives up says that the client is not connected', async () => {
      const { client, close } = make(NOBODY_THERE)
      const before = listenersOf(client)
      const guard = redisGuard({ client, callTimeoutMs: 3_000 })
      await assert.rejects(guard.highest('x'), (error) => {
        assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown', String(error))
        assert.match(error.message, DOWN)
        assert.match(inspect(error.cause), /ECONNREFUSED/)
        return true
      })
      assert.deepEqual(listenersOf(client), before)
      close()
    })

    test('G11 a server that goes down while it is used is told as such by every call, with what to do', async () => {
      await using own = await startRedis()
      const { client, close } = make(own.url)
      const clock = createFakeClock()
      const locker = createLocker(openRedis({ client, clock }), { ttlMs: 60_000 })
      const lease = await locker.acquire('x')
      await own.kill()
      await until('it is noticed', () => /ECONNREFUSED/.test(inspect(ClientState.of(client).trouble)))
      const calls = {
        tryAcquire: () => locker.tryAcquire('y'),
        acquire: () => locker.acquire('z', { waitMs: 2_000 }),
        renew: () => lease.renew(),
        inspect: () => locker.inspect('x'),
        list: () => locker.list(),
      }
      for (const [what, ask] of Object.entries(calls)) {
        const asked = ask().then(
          () => assert.fail('it was answered'),
          (error: Error) => error,
        )
        await clock.advance(5_000)
        assert.match((await asked).message, DOWN, what)
      }
      close()
      const closing = locker.close({ graceMs: 0 })
      await clock.advance(60_000)
      await closing
    })

    test.runIf(wanted('postgres'))('G11 a server that does not speak Redis is told as such', async () => {
      await using postgres = await startPostgres()
      const { client, close } = make(`redis://127.0.0.1:${postgres.port}`)
      const error = await failureOfAcquire(openRedis({ client }))
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied', String(error))
      assert.match(error.message, /host and port of the client: what listens there .*may not speak Redis/)
      close()
    })

    test('G11 G12 a wrong password is told as such at once, and shown nowhere', async () => {
      const { client, close } = make(urlOf('nobody:wrong-password@'))
      const error = await failureOfAcquire(openRedis({ client }))
      assert(isHoldfastError(error, 'UNSUPPORTED'), String(error))
      assert.match(error.message, /WRONGPASS.*Give the right user and password/)
      assert(!inspect(error, { depth: 10, showHidden: true }).includes('wrong-password'))
      close()
    })

    test('G12 a password that is missing is told as such at once', async () => {
      await using own = await startRedis()
      await redisCall(own, 'CONFIG', 'SET', 'requirepass', 'secret')
      const { client, close } = make(own.url)
      const error = await failureOfAcquire(openRedis({ client }))
      assert(isHoldfastError(error, 'UNSUPPORTED'), String(error))
      assert.match(error.message, /NOAUTH.*Give the right user and password/)
      close()
    })

    test('G12 a right that is missing is named, by locker and guard', async () => {
      const { client, close } = make(urlOf('reader:p@'))
      const isRefusal = (error: unknown) =>
        isHoldfastError(error, 'UNSUPPORTED') && /NOPERM.*ACL SETUSER <user> \+evalsha/s.test(error.message)
      const error = await failureOfAcquire(openRedis({ client }))
      assert(isRefusal(error), String(error))
      await assert.rejects(redisGuard({ client }).highest('x'), isRefusal)
      close()
    })

    test('a client that was closed before its locker ends the wait for a lock at once', async () => {
      const { client, close } = make(server.url)
      const locker = createLocker(openRedis({ client }))
      const lease = await locker.acquire('x')
      await lease.release()
      close()
      await until('it has ended', () => !ClientState.of(client).isReady)
      await assert.rejects(
        locker.acquire('y', { waitMs: Number.POSITIVE_INFINITY }),
        (error) => isHoldfastError(error, 'UNSUPPORTED') && /close it after Holdfast/.test(error.message),
      )
      await locker.close({ graceMs: 0 })
    })

    test('the client in place of the options is told apart', () => {
      const { client, close } = make(NOBODY_THERE)
      const isTold = (pattern: RegExp) => (error: unknown) =>
        isHoldfastError(error, 'INVALID_ARGUMENT') && pattern.test(error.message)
      const instead = /^(redis|guard) options must be an object with a client: pass \{ client: … \} instead/
      assert.throws(() => openRedis(client as never), isTold(instead))
      assert.throws(() => redisGuard(client as never), isTold(instead))
      for (const given of [client, [client, client, client]])
        assert.throws(
          () => openRedlock(given as never),
          isTold(/^redlock options must be .*pass \{ clients: \[/),
        )
      close()
    })
  })

  test('G12 a database that the server does not have is told as such, whether or not the library minds', async () => {
    const isTold = (error: Error) =>
      isHoldfastError(error, 'UNSUPPORTED') && /Choose a database that the server has/.test(error.message)
    for (const { name, make } of libraries) {
      const { client, close } = make(urlOf('', '/99'))
      const error = await failureOfAcquire(openRedis({ client }))
      assert(isTold(error), `${name}: ${error}`)
      if (name.startsWith('ioredis')) {
        await until('it is connected, to another database', () => ClientState.of(client).isReady)
        const again = await failureOfAcquire(openRedis({ client }))
        assert(isTold(again) && /and is in database 0/.test(again.message), `${name}: ${again}`)
      }
      close()
    }
  })

  test('G11 a Cluster that is not there is told in the words of the client (ioredis)', async () => {
    for (const Cluster of [IoRedisCluster6, IoRedisCluster5 as unknown as typeof IoRedisCluster6]) {
      const client = new Cluster([NOBODY_THERE])
      client.on('error', () => {})
      const error = await failureOfAcquire(openRedis({ client }))
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'not-applied', String(error))
      assert.match(error.message, /the client is not connected \(/)
      client.disconnect()
    }
  })

  test('T51 who does not listen to the errors of their client is told by it as before', async () => {
    for (const Redis of [IoRedis6, IoRedis5 as unknown as typeof IoRedis6]) {
      const logged = vi.spyOn(console, 'error').mockImplementation(() => {})
      try {
        const client = new Redis(NOBODY_THERE)
        const error = await failureOfAcquire(openRedis({ client }))
        assert.match(error.message, /the client is not connected \(.*ECONNREFUSED/)
        assert.match(inspect(logged.mock.calls), /Unhandled error event/)
        client.disconnect()
      } finally {
        logged.mockRestore()
      }
    }
  })

  test('redlock: clients that were closed, or are not let in, end the wait for a lock at once', async () => {
    const isFinal = (pattern: RegExp) => (error: unknown) =>
      isHoldfastError(error, 'UNSUPPORTED') && pattern.test(error.message)
    const [library] = libraries
    assert(library !== undefined)
    const servers = await Promise.all([startRedis(), startRedis(), startRedis()])
    try {
      const made = servers.map(({ url }) => library.make(url))
      const clients = made.map(({ client }) => client)
      const locker = createLocker(openRedlock({ clients, persistence: 'every-write' }))
      await (await locker.acquire('x')).release()
      for (const { close } of made.slice(1)) close()
      await until('they have ended', () => !clients.slice(1).some((each) => ClientState.of(each).isReady))
      const asked = locker.acquire('y', { waitMs: Number.POSITIVE_INFINITY })
      await assert.rejects(asked, isFinal(/close it after Holdfast/))
      await locker.close({ graceMs: 0 })
      made[0]?.close()
      const strangers = servers.map(({ url }) => library.make(url.replace('//', '//nobody:wrong-password@')))
      const error = await failureOfAcquire(openRedlock({ clients: strangers.map(({ client }) => client) }))
      assert(isFinal(/WRONGPASS.*Give the right user and password/)(error), String(error))
      for (const { close } of strangers) close()
    } finally {
      await Promise.all(servers.map((each) => each.stop()))
    }
  })
})
