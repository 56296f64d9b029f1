/** Every supported library behind the one interface, on a real server and a real Cluster. */
import assert from 'node:assert/strict'
import { startProxy } from 'holdfast-lab/faults'
import {
  type Cluster,
  redisCall,
  type Server,
  startRedis,
  startRedisCluster,
  wanted,
} from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { createCluster } from 'redis'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type ClientLibrary, libraries, type OpenedClient } from '../../../../test/redis/clients.ts'
import { type Clock, systemClock } from '../../../base/clock.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { RedisConnection } from './connection.ts'
import { slotOf } from './hash-slots.ts'
import type { RedisReply } from './raw.ts'
import { redisScript } from './script.ts'

const remember = redisScript("redis.call('SET', KEYS[1], ARGV[1]); return redis.call('GET', KEYS[1])")

describe.runIf(wanted('redis'))('the users’ clients', () => {
  let server: Server
  let cluster: Cluster
  beforeAll(async () => {
    ;[server, cluster] = await Promise.all([startRedis(), startRedisCluster()])
  })
  afterAll(async () => {
    await Promise.all([server?.stop(), cluster?.stop()])
  })

  async function using(
    opened: OpenedClient,
    work: (connection: RedisConnection) => Promise<void>,
    clock: Clock = systemClock,
  ) {
    const connection = new RedisConnection(opened.client, { backend: 'redis', clock })
    try {
      await work(connection)
    } finally {
      connection.close()
      opened.close()
    }
  }

  const urls = () => cluster.members.map(({ host, port }) => `redis://${host}:${port}`)

  describe.each(libraries)('$name', (library: ClientLibrary) => {
    test('runs a script by its SHA, also when the server has forgotten it', async () => {
      await using(await library.open(server.url), async (connection) => {
        await redisCall(server, 'SCRIPT', 'FLUSH')
        assert.equal(await connection.run(remember, ['a'], ['1']), '1')
        assert.equal(await connection.run(remember, ['a'], ['2']), '2')
        await redisCall(server, 'SCRIPT', 'FLUSH')
        for (const value of ['3', '4']) {
          const read = (reply: RedisReply, isRepeated: boolean) => [reply, isRepeated]
          assert.deepEqual(await connection.ask(remember, ['a'], [value], read), [value, false])
        }
      })
    })

    test('G11 what the server refuses is told with its outcome, and nothing is asked after the end', async () => {
      await using(await library.open(server.url), async (connection) => {
        const refused = redisScript("return redis.call('INCR', KEYS[1])")
        await connection.run(remember, ['text'], ['no number'])
        const read = () => assert.fail('there is no answer to read')
        await assert.rejects(
          connection.ask(refused, ['text'], [], read),
          (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown',
        )
        connection.close()
        await assert.rejects(connection.ask(remember, ['a'], ['5'], read), (error) =>
          isHoldfastError(error, 'CLOSED'),
        )
      })
    })

    test('T52 keeps to the client’s database and key prefix', async () => {
      const keyPrefix = library.prefixes ? 'app:' : undefined
      const opened = await library.open(server.url, { database: 3, ...(keyPrefix && { keyPrefix }) })
      await using(opened, async (connection) => {
        assert.equal(connection.keyPrefix, keyPrefix ?? '')
        await connection.run(remember, [`db-${library.name}`], ['here'])
        const keys = (await redisCall(server, 'KEYS', '*')) as string[]
        assert(!keys.some((key) => key.includes(`db-${library.name}`)), 'database 0 is untouched')
        const [node] = await connection.nodes()
        const found = await node?.send(['EXISTS', `db-${library.name}`])
        const foundPrefixed = await node?.send(['KEYS', `*db-${library.name}`])
        assert(found === 1 || String(foundPrefixed) === `${keyPrefix}db-${library.name}`)
      })
    })

    test('hears messages, comes back after a loss, and says that some may be missing', async () => {
      await using proxy = await startProxy(server)
      const opened = await library.open(`redis://${proxy.host}:${proxy.port}`)
      await using(opened, async (connection) => {
        const heard: string[] = []
        const waiting = Promise.withResolvers<void>()
        await connection.subscribe('news', (message) => heard.push(message), waiting.resolve)
        await redisCall(server, 'PUBLISH', 'news', 'one')
        await until(() => heard.length === 1)
        proxy.reset()
        await waiting.promise
        await redisCall(server, 'PUBLISH', 'news', 'two')
        await until(() => heard.length === 2)
        assert.deepEqual(heard, ['one', 'two'])
      })
    })

    test('T96 a server that accepts the connection for messages and says nothing is not waited for without an end', async () => {
      let connections = 0
      await using proxy = await startProxy(server, { label: () => String(++connections) })
      const opened = await library.open(`redis://${proxy.host}:${proxy.port}`)
      const clock = createFakeClock()
      const work = async (connection: RedisConnection) => {
        await connection.run(remember, ['a'], ['1'])
        let resumed = 0
        await connection.subscribe(
          'news',
          () => {},
          () => resumed++,
        )
        assert.equal(connections, 2)
        proxy.hold('down', ({ label }) => label === '3')
        proxy.reset(({ label }) => label === '2')
        await until(async () => {
          await clock.advance(10)
          return connections === 3
        })
        assert.equal(resumed, 0)
        await clock.advance(10_000)
        await until(async () => {
          await clock.advance(10)
          return resumed === 1
        })
        assert.equal(connections, 4)
      }
      await using(opened, work, clock)
    })

    test('G11 a connection of our own that is cancelled in its handshake is not opened', async () => {
      let connections = 0
      await using proxy = await startProxy(server, { label: () => String(++connections) })
      const opened = await library.open(`redis://${proxy.host}:${proxy.port}`)
      await using(opened, async (connection) => {
        await connection.run(remember, ['a'], ['1'])
        proxy.hold('down', ({ label }) => label === '2')
        const controller = new AbortController()
        const opening = connection.dedicated('a', controller.signal)
        opening.catch(() => {})
        await until(() => connections === 2)
        controller.abort(new Error('enough'))
        await assert.rejects(opening, (error) => isUnavailable(error, 'unknown'))
        // It would go on with its handshake.
        proxy.heal()
        await until(() => proxy.connections === 1)
      })
    })

    test('a subscription that the server refuses is asked for again after pauses, by one connection at a time', async () => {
      const user = `${library.name.replace(' ', '-')}-reader`
      await redisCall(server, 'ACL', 'SETUSER', user, 'on', '>p', '~*', '+@all', '&*')
      const clock = createFakeClock()
      const opened = await library.open(server.url.replace('redis://', `redis://${user}:p@`))
      await using(
        opened,
        async (connection) => {
          let resumed = 0
          await connection.subscribe(
            'news',
            () => {},
            () => resumed++,
          )
          await redisCall(server, 'ACL', 'SETUSER', user, '-subscribe')
          await redisCall(server, 'ACL', 'LOG', 'RESET')
          const refusals = async () => {
            const log = (await redisCall(server, 'ACL', 'LOG', '100')) as unknown[][]
            const ours = log.filter((entry) => entry.includes(user))
            return ours.reduce((sum, [, count]) => sum + Number(count), 0)
          }
          await redisCall(server, 'CLIENT', 'KILL', 'TYPE', 'pubsub')
          await until(async () => {
            // Either a pause, or a connection that is being opened.
            assert(clock.pendingTimers <= 1, `${clock.pendingTimers} at once`)
            await clock.advance(1_000)
            return (await refusals()) >= 5
          })
          await redisCall(server, 'ACL', 'SETUSER', user, '+subscribe')
          await until(async () => {
            assert(clock.pendingTimers <= 1, `${clock.pendingTimers} at once`)
            await clock.advance(1_000)
            return resumed > 0
          })
          assert.equal(resumed, 1)
        },
        clock,
      )
    })

    test('a connection of our own waits without holding up the client’s', async () => {
      await using(await library.open(server.url), async (connection) => {
        const own = await connection.dedicated('a')
        const blocked = own.send(['BLPOP', `list-${library.name}`, '5'])
        await connection.run(remember, ['a'], ['meanwhile'])
        await redisCall(server, 'RPUSH', `list-${library.name}`, 'x')
        assert.deepEqual(await blocked, [`list-${library.name}`, 'x'])
        own.close()
      })
    })

    test('G11 a call whose signal aborts settles at once, as unknown', async () => {
      await using proxy = await startProxy(server)
      const opened = await library.open(`redis://${proxy.host}:${proxy.port}`)
      await using(opened, async (connection) => {
        await connection.run(remember, ['a'], ['1'])
        proxy.drop('down')
        const controller = new AbortController()
        const running = connection.run(remember, ['a'], ['2'], controller.signal)
        controller.abort(new Error('enough'))
        await assert.rejects(running, (error) => isUnavailable(error, 'unknown'))
        await assert.rejects(connection.run(remember, ['a'], ['3'], controller.signal), (error) =>
          isUnavailable(error, 'not-applied'),
        )
      })
    })

    test('G11 a refusal of the server is told as not applied, a failing script as unknown, without arguments', async () => {
      await using(await library.open(server.url), async (connection) => {
        const replica = await startRedis({ replicaOf: server })
        const onReplica = await library.open(replica.url)
        await using(onReplica, async (other) => {
          await assert.rejects(other.run(remember, ['a'], ['secret']), (error) => {
            assert(isUnavailable(error, 'not-applied'), String(error))
            assert(!JSON.stringify(Object.entries(error.cause as object)).includes('secret'))
            return true
          })
        })
        await replica.stop()
        const failing = redisScript(
          "redis.call('SET', KEYS[1], '1'); return redis.call('LPUSH', KEYS[1], '1')",
        )
        await assert.rejects(connection.run(failing, ['a'], []), (error) => isUnavailable(error, 'unknown'))
      })
    })

    test('G11 a client that is closed is told as such', async () => {
      const opened = await library.open(server.url)
      const connection = new RedisConnection(opened.client, { backend: 'redis' })
      await connection.run(remember, ['a'], ['1'])
      opened.close()
      await until(() => 'isOpen' in opened.client || opened.client.status === 'end')
      await assert.rejects(
        connection.run(remember, ['a'], ['1']),
        (error) => isHoldfastError(error, 'UNSUPPORTED') && /has been closed/.test(error.message),
      )
      connection.close()
    })

    test('T52 on a Cluster scripts go to the slot of their keys, and messages to all nodes', async () => {
      await using(await library.openCluster(urls()), async (connection) => {
        assert(connection.isCluster)
        for (const name of ['a', 'b', 'c', 'd']) {
          assert.equal(await connection.run(remember, [`{${name}}`], [name]), name)
          const own = await connection.dedicated(`{${name}}`)
          assert.equal(await own.send(['GET', `{${name}}`]), name)
          own.close()
        }
        assert.equal((await connection.nodes()).length, 3)
        const heard: string[] = []
        await connection.subscribe(
          'cluster-news',
          (message) => heard.push(message),
          () => {},
        )
        for (const member of cluster.members) await redisCall(member, 'PUBLISH', 'cluster-news', 'x')
        await until(() => heard.length === 3)
      })
    })
  })

  test('T52 a key prefix that node-redis does not tell is refused', async () => {
    const client = createCluster({ rootNodes: urls().map((url) => ({ url })), keyPrefix: 'app:' })
    client.on('error', () => {})
    await client.connect()
    await using({ client, close: () => client.destroy() }, async (connection) => {
      await assert.rejects(
        connection.run(remember, ['a'], ['1']),
        (error) => isHoldfastError(error, 'UNSUPPORTED') && /keyPrefix/.test(error.message),
      )
    })
  })

  test('T52 a client of ioredis that was moved to another database is refused', async () => {
    const client = new Redis(server.url)
    await client.select(2)
    const close = () => client.disconnect()
    await using({ client, close }, async (connection) => {
      await assert.rejects(
        connection.checkDatabase(),
        (error) => isHoldfastError(error, 'UNSUPPORTED') && /is in database 2/.test(error.message),
      )
    })
  })

  test('slots are those of the server', async () => {
    const [member] = cluster.members
    assert(member !== undefined)
    for (const key of ['a', '{tag}rest', 'x{}y', 'x{y}{z}', 'größe', '{', '}{a}'])
      assert.equal(slotOf(key), await redisCall(member, 'CLUSTER', 'KEYSLOT', key))
  })

  test('something else than a client is refused', () => {
    for (const client of [undefined, null, {}, 'redis://x', { call() {} }])
      assert.throws(() => new RedisConnection(client as never, { backend: 'redis' }), /client must be/)
  })
})

function isUnavailable(error: unknown, outcome: 'unknown' | 'not-applied'): error is Error {
  return isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === outcome
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let turns = 0; !(await holds()); turns++) {
    assert(turns < 12_000, 'not within 120 s')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
