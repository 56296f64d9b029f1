/** The server's errors about an effect are told as mistakes in what was handed in, with every client library. */
import assert from 'node:assert/strict'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { libraries, libraryNamed, type OpenedClient } from '../../../../test/redis/clients.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { type Fence, makeFence } from '../../../base/fence.ts'
import { failureOfEffect } from './failures.ts'
import { type RedisGuard, redisGuard } from './redis-guard.ts'

describe.runIf(wanted('redis'))('failing effects of a Redis guard', () => {
  let server: Server
  const opened: OpenedClient[] = []
  beforeAll(async () => {
    server = await startRedis()
  })
  afterEach(() => {
    for (const each of opened.splice(0)) each.close()
  })
  afterAll(() => server?.stop())

  describe.each(libraries)('with $name', (library) => {
    async function openGuard(): Promise<RedisGuard> {
      const client = await library.open(server.url)
      opened.push(client)
      return redisGuard({ client: client.client, tag: `failing ${library.name}` })
    }
    const fence = fenceOf(3n)
    const key = `failing ${library.name}`

    test('G11 Lua that does not compile is an invalid source, with the line, and nothing has happened', async () => {
      const guard = await openGuard()
      const name = `uncompiled ${library.name}`
      await rejectsAs(
        guard.evaluate(fenceOf(3n, name), 'return 1 +\n\n)'),
        'source',
        /compile: line 3: .*near/,
      )
      await rejectsAs(
        guard.evaluate(fenceOf(3n, name), 'this is no Lua'),
        'source',
        /compile: line 1: .*near/,
      )
      assert.equal(await guard.highest(name), null)
    })

    test('G11 Lua that raises an error is an invalid source; what it wrote stays, the fence is seen, and the error says so', async () => {
      const guard = await openGuard()
      const failing = guard.evaluate(fence, "redis.call('SET', KEYS[1], 'half')\nerror('planted')", {
        keys: [key],
      })
      await rejectsAs(failing, 'source', /raised an error: line 2: planted\. What it wrote before that stays/)
      assert.equal(await redisCall(server, 'GET', key), 'half')
      assert.equal((await guard.highest('n'))?.token, 3n)
      const wrongType = guard.evaluate(fence, "return redis.call('LPUSH', KEYS[1], 'x')", { keys: [key] })
      await rejectsAs(wrongType, 'source', /WRONGTYPE/)
      await rejectsAs(
        guard.evaluate(fence, "return redis.error_reply('NO own words')"),
        'source',
        /own words/,
      )
      await rejectsAs(guard.evaluate(fence, 'error({})'), 'source', /raised an error/)
      await rejectsAs(guard.evaluate(fence, 'return take()'), 'source', /nonexistent global variable 'take'/)
      assert.equal(await guard.evaluate(fence, 'local nothing = 1 -- and a comment'), null)
    })

    test('G11 a key that holds something else is an invalid key, by name', async () => {
      const guard = await openGuard()
      const [list, text] = [`${key} list`, `${key} text`]
      await redisCall(server, 'DEL', list)
      await redisCall(server, 'RPUSH', list, 'x')
      await redisCall(server, 'SET', text, 'x')
      const isList = new RegExp(`"${list}".*WRONGTYPE.* Nothing was written`)
      await rejectsAs(guard.get(fence, list), 'key', isList)
      await rejectsAs(guard.increment(fence, list), 'key', isList)
      await rejectsAs(
        guard.increment(fence, text, 5),
        'key',
        /text" cannot be incremented by 5: ERR value is not an integer/,
      )
      const run = guard.run(fence, (tx) => tx.get(list))
      await rejectsAs(run, 'key', new RegExp(`"${list}" cannot be read as text: WRONGTYPE`))
      await guard.set(fence, list, 'text takes the place of anything')
      await guard.delete(fence, [list, text])
    })
  })

  test('G11 a server that has no memory left refuses the whole of a call, also of a guard in the middle of its calls', async () => {
    const client = await libraryNamed('ioredis 6').open(server.url)
    opened.push(client)
    const guard = redisGuard({ client: client.client, tag: 'full' })
    for (let times = 0; times < 3; times++) await guard.increment(fenceOf(1n), 'full')
    await redisCall(server, 'CONFIG', 'SET', 'maxmemory', 1)
    try {
      for (const call of [
        () => guard.increment(fenceOf(1n), 'full'),
        () => guard.evaluate(fenceOf(1n), "return redis.call('DEL', KEYS[1])", { keys: ['full'] }),
      ])
        await assert.rejects(call, { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    } finally {
      await redisCall(server, 'CONFIG', 'SET', 'maxmemory', 0)
    }
    assert.equal(await guard.increment(fenceOf(1n), 'full'), 4n)
  })

  test('G11 trouble of the server’s own that an effect meets stays an unknown outcome', () => {
    for (const message of [
      'OOM command not allowed',
      '@user_script: 3: -READONLY You can’t write against a read only replica.',
    ]) {
      const error = failureOfEffect({ argument: 'source', what: 'raised an error' }, message)
      assert(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
      assert.equal(error.outcome, 'unknown')
    }
  })
})

const fenceOf = (token: bigint, name = 'n'): Fence =>
  makeFence({ issuer: 'i', name, mode: 'exclusive', token, grant: `g${token}` })

function rejectsAs(call: Promise<unknown>, argument: string, message: RegExp): Promise<void> {
  return assert.rejects(call, (error) => {
    assert(isHoldfastError(error, 'INVALID_ARGUMENT'), String(error))
    assert.deepEqual([error.argument, error.retryable], [argument, false])
    assert.match(error.message, message)
    assert(error.cause instanceof Error)
    return true
  })
}
