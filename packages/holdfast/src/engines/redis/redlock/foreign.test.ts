/** Clients of other languages and libraries, with nothing but the classic recipe: both exclude each other. */
import assert from 'node:assert/strict'
import { wanted } from 'holdfast-lab/servers'
import { createClient } from 'redis'
import { afterAll, afterEach, beforeAll, describe, test } from 'vitest'
import { type Nodes, startNodes } from '../../../../test/redlock/nodes.ts'
import { call, hold, RedlockStage, take, ttlMs } from '../../../../test/redlock/stage.ts'

const compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`

describe.runIf(wanted('redis'))('redlock: other clients', () => {
  let nodes: Nodes
  let stranger: Stranger
  beforeAll(async () => {
    nodes = await startNodes()
    stranger = await connectStranger(nodes)
  })
  afterEach(() => nodes.endClients())
  afterAll(async () => {
    stranger?.close()
    await nodes?.stop()
  })

  const key = (name: string) => `locks:${name}`

  test('what we hold is refused to them, until it is released', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session('ada', { key })
    const held = await hold(session, 'ours')
    await nodes.flush()
    assert.equal(await stranger.lock(key('ours'), ttlMs), null)
    assert.equal(await session.release(held, { keepForMs: 0 }, call()), 'released')
    await nodes.flush()
    const mine = await stranger.lock(key('ours'), ttlMs)
    assert(mine !== null)
    await stranger.unlock(key('ours'), mine)
  })

  test('what they hold is busy for us, until it is released', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session('ada', { key })
    const mine = await stranger.lock(key('theirs'), 10 * ttlMs)
    assert(mine !== null)
    const busy = await take(session, 'theirs')
    assert(busy.kind === 'busy' && busy.retryAfterMs !== undefined && busy.retryAfterMs > ttlMs)
    await stranger.unlock(key('theirs'), mine)
    await hold(session, 'theirs')
  })

  test('expiries count for both', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session('ada', { key })
    const lost = await hold(session, 'a')
    assert((await stranger.lock(key('b'), ttlMs)) !== null)
    await nodes.flush()
    nodes.clock.step(ttlMs + 1)
    assert((await stranger.lock(key('a'), ttlMs)) !== null)
    await hold(await stage.session('bob', { key }), 'b')
    assert.equal(await session.release(lost, { keepForMs: 0 }, call()), 'not-held')
    assert.equal(await stranger.lock(key('a'), ttlMs), null, 'a late release touches no successor')
  })

  test('a key of another type, or one that never ends, is taken and not free', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session('ada', { key })
    await nodes.call('RPUSH', key('list'), 'x')
    await nodes.call('SET', key('for ever'), 'x')
    for (const name of ['list', 'for ever']) {
      const result = await take(session, name)
      assert.equal(result.kind, 'busy')
      const backend = await stage.backend({ key })
      assert.equal((await backend.inspect(name, call()))?.holders[0]?.holder, '(another client)')
    }
  })

  test('with a key function names cannot be listed, and that is said', async () => {
    const backend = await new RedlockStage(nodes).backend({ key })
    await assert.rejects(backend.list('', { limit: 10 }, call()), { code: 'UNSUPPORTED' })
  })

  test('the value of a lock is a plain string with a time to live, and nothing is left when it is released', async () => {
    const stage = new RedlockStage(nodes)
    const session = await stage.session()
    const held = await hold(session, 'x')
    await nodes.flush()
    assert.deepEqual(new Set(await nodes.call('TYPE', stage.key('x'))), new Set(['string']))
    const [left] = await nodes.call('PTTL', stage.key('x'))
    assert(Number(left) > 0 && Number(left) <= ttlMs)
    await session.release(held, { keepForMs: 0 }, call())
    await session.close(call())
    await nodes.flush()
    assert.deepEqual((await nodes.call('KEYS', `holdfast:${stage.namespace}:*`)).flat(), [])
  })
})

interface Stranger {
  lock(key: string, ttlMs: number): Promise<string | null>
  unlock(key: string, value: string): Promise<void>
  close(): void
}

async function connectStranger({ servers }: Nodes): Promise<Stranger> {
  const clients = await Promise.all(
    servers.map(async ({ url }) => {
      const client = createClient({ url })
      await client.connect()
      return client
    }),
  )
  let turns = 0
  const unlock = async (key: string, value: string) => {
    await Promise.all(
      clients.map((client) => client.eval(compareAndDelete, { keys: [key], arguments: [value] })),
    )
  }
  return {
    async lock(key, ttlMs) {
      const value = `stranger-${++turns}`
      const votes = await Promise.all(
        clients.map((client) =>
          client.set(key, value, { condition: 'NX', expiration: { type: 'PX', value: ttlMs } }),
        ),
      )
      if (votes.filter((vote) => vote === 'OK').length > clients.length / 2) return value
      await unlock(key, value)
      return null
    },
    unlock,
    close: () => {
      for (const client of clients) client.destroy()
    },
  }
}
