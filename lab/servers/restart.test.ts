// A crash and a restart on the same data, per engine: what was written is there again, at the same address.

import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import {
  connectZooKeeper,
  fetchJson,
  psql,
  redisCall,
  type Server,
  startConsul,
  startEtcd,
  startPostgres,
  startRedis,
  startZooKeeper,
  waitFor,
  wanted,
} from './index.ts'

/** Kill −9 and start again; the process must be another, the address the same. */
async function crash(server: Server): Promise<void> {
  const before = { pid: server.pid, url: server.url }
  await server.kill()
  await server.restart()
  assert.notEqual(server.pid, before.pid)
  assert.equal(server.url, before.url)
}

function first({ members: [member] }: { members: readonly Server[] }): Server {
  if (member === undefined) throw new Error('no members')
  return member
}

describe.concurrent('a restart keeps the data', () => {
  test.runIf(wanted('redis'))('Redis, if it was told to; otherwise it forgets', async () => {
    await using durable = await startRedis({ persistence: 'every-write' })
    await using forgetful = await startRedis()
    for (const redis of [durable, forgetful]) {
      await redisCall(redis, 'SET', 'key', 'value')
      await crash(redis)
    }
    assert.equal(await redisCall(durable, 'GET', 'key'), 'value')
    assert.equal(await redisCall(forgetful, 'GET', 'key'), null)
    await durable.restart()
    assert.equal(await redisCall(durable, 'GET', 'key'), 'value')
  })

  test.runIf(wanted('etcd'))('etcd', async () => {
    await using etcd = await startEtcd({ members: 3 })
    const member = first(etcd)
    const body = JSON.stringify({ key: 'a2V5', value: 'dmFsdWU=' })
    await fetchJson(`${member.url}/v3/kv/put`, { method: 'POST', body })
    await crash(member)
    const range = { method: 'POST', body: JSON.stringify({ key: 'a2V5', serializable: true }) }
    assert.equal((await fetchJson<{ count: string }>(`${member.url}/v3/kv/range`, range)).count, '1')
  })

  test.runIf(wanted('zookeeper'))('ZooKeeper', async () => {
    await using ensemble = await startZooKeeper()
    const server = first(ensemble)
    using client = await connectZooKeeper(server)
    await client.create('/key', 'value')
    await crash(server)
    using again = await connectZooKeeper(server)
    assert.equal((await again.get('/key')).data, 'value')
  })

  test.runIf(wanted('postgres'))('PostgreSQL, also when it was paused while it was killed', async () => {
    await using postgres = await startPostgres()
    await psql(postgres, 'create table kept (value int)')
    await psql(postgres, 'insert into kept values (1)')
    await crash(postgres)
    assert.equal(await psql(postgres, 'select * from kept'), '1')
    await postgres.pause()
    await crash(postgres)
    assert.equal(await psql(postgres, 'select * from kept'), '1')
    await postgres.restart()
    assert.equal(await psql(postgres, 'select * from kept'), '1')
  })

  test.runIf(wanted('consul'))('Consul', async () => {
    await using consul = await startConsul({ members: 3 })
    const member = first(consul)
    await fetchJson(`${member.url}/v1/kv/key`, { method: 'PUT', body: 'value' })
    await crash(member)
    await waitFor('the member to have the value', async () => {
      const [found] = await fetchJson<{ Value: string }[]>(`${member.url}/v1/kv/key?stale`)
      return found?.Value === Buffer.from('value').toString('base64')
    })
  })

  test.runIf(wanted('redis'))('but a stopped one is gone', async () => {
    const redis = await startRedis()
    await redis.stop()
    await assert.rejects(redis.restart(), /was stopped/)
    await assert.rejects(redis.pause(), /does not run/)
    await redis.stop()
  })

  test.runIf(wanted('redis'))('and one that cannot start says why, in its own words', async () => {
    await assert.rejects(
      startRedis({ settings: { maxmemory: 'plenty' } }),
      /ended while it started.*maxmemory/s,
    )
  })
})
