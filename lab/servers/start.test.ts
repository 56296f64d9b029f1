// Everything that the harness can start, all at once, and each asked to do a bit of real work.

import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { fetchJson } from './http.ts'
import { engineOf, type Lot, type LotName, lotNames, startLot } from './lot.ts'
import { psql } from './postgres.ts'
import { connectRedis, RespError, redisCall } from './resp.ts'
import type { Server } from './server.ts'
import { wanted } from './wanted.ts'
import { modeOf } from './zookeeper.ts'
import { connectZooKeeper } from './zookeeper-client.ts'

const names = lotNames.filter((name) => wanted(engineOf(name)))
let lot: Partial<Lot> = {}

beforeAll(async () => {
  lot = await startLot(names)
})
afterAll(async () => {
  const folders = servers().map(({ folder }) => folder)
  await Promise.all(Object.values(lot).map((each) => each.stop()))
  assert.deepEqual(
    folders.filter((folder) => existsSync(folder)),
    [],
  )
})

function servers(): Server[] {
  return Object.values(lot).flatMap((each) => ('members' in each ? [...each.members] : [each]))
}

/** A test that is left out when this run is not about its engine. */
function check<Name extends LotName>(
  name: Name,
  what: string,
  body: (started: Lot[Name]) => Promise<void>,
): void {
  test.runIf(names.includes(name))(`${name} ${what}`, () => body(lot[name] as Lot[Name]))
}

describe('servers started together', () => {
  test('each has a port, a folder and a process of its own', () => {
    const all = servers()
    for (const key of ['port', 'folder', 'pid'] as const) {
      assert.equal(new Set(all.map((server) => server[key])).size, all.length, key)
    }
    for (const { url } of all) assert.match(url, /127\.0\.0\.1/)
  })

  check('redis', 'keeps a value', async (redis) => {
    await redisCall(redis, 'SET', 'key', 'value')
    assert.equal(await redisCall(redis, 'GET', 'key'), 'value')
  })

  check('redis-pair', 'hands writes on, and the replica takes none', async ({ primary, replica }) => {
    using client = await connectRedis(primary)
    await client.call('SET', 'key', 'value')
    // WAIT is about the writes of its own connection.
    assert.equal(await client.call('WAIT', 1, 30_000), 1)
    assert.equal(await redisCall(replica, 'GET', 'key'), 'value')
    await assert.rejects(redisCall(replica, 'SET', 'key', 'other'), RespError)
  })

  check('redis-nodes', 'know nothing of each other', async ({ members }) => {
    await Promise.all(members.map((node, index) => redisCall(node, 'SET', 'key', index)))
    const values = await Promise.all(members.map((node) => redisCall(node, 'GET', 'key')))
    assert.deepEqual(values, ['0', '1', '2', '3', '4'])
  })

  check('redis-cluster', 'has every slot in exactly one primary', async ({ members }) => {
    for (let i = 0; i < 50; i += 1) {
      const outcomes = await Promise.allSettled(members.map((node) => redisCall(node, 'SET', `key-${i}`, i)))
      const refusals = outcomes.filter((outcome) => outcome.status === 'rejected')
      assert.equal(refusals.length, members.length - 1)
      for (const { reason } of refusals) assert.match(String(reason), /MOVED/)
    }
  })

  for (const name of ['etcd', 'etcd-cluster'] as const) {
    check(name, 'shows a write everywhere', async ({ members, leader }) => {
      const body = JSON.stringify({ key: 'a2V5', value: 'dmFsdWU=' })
      await fetchJson(`${(await leader()).url}/v3/kv/put`, { method: 'POST', body })
      for (const { url } of members) {
        const answer = await fetchJson<{ count: string }>(`${url}/v3/kv/range`, { method: 'POST', body })
        assert.equal(answer.count, '1')
      }
    })
  }

  check('zookeeper', 'keeps a node', async ({ leader }) => {
    using client = await connectZooKeeper(await leader())
    await client.create('/key', 'value')
    assert.equal((await client.get('/key')).data, 'value')
  })

  check('zookeeper-cluster', 'has one leader, and the others follow', async ({ members }) => {
    const modes = await Promise.all(members.map(modeOf))
    assert.deepEqual(modes.sort(), ['follower', 'follower', 'leader'])
  })

  check('postgres', 'answers', async (postgres) => {
    assert.equal(await psql(postgres, 'select 6 * 7'), '42')
  })

  check(
    'pgbouncer',
    'lends one session of the database to several clients',
    async ({ bouncer, postgres }) => {
      // The trap that it is here for: a lock of the session outlives the client who took it.
      await psql(bouncer, 'select pg_advisory_lock(42)')
      assert.equal(await psql(postgres, `select count(*) from pg_locks where locktype = 'advisory'`), '1')
    },
  )

  for (const name of ['consul', 'consul-cluster'] as const) {
    check(name, 'gives a lock to a session', async ({ members: [member] }) => {
      const put = <T>(path: string, body: unknown) =>
        fetchJson<T>(`${member?.url}/v1${path}`, { method: 'PUT', body: JSON.stringify(body) })
      const { ID } = await put<{ ID: string }>('/session/create', { TTL: '10s' })
      assert.equal(await put(`/kv/lock?acquire=${ID}`, 'mine'), true)
    })
  }

  check('azurite', 'asks for a signature', async ({ url }) => {
    const { host, pathname } = new URL(url)
    const refused = await fetch(`http://${host}${pathname}?comp=list`)
    assert.equal(refused.headers.get('x-ms-error-code'), 'AuthorizationFailure')
  })

  check('radosgw', 'has no bucket yet, and knows its user', async ({ gateway, members }) => {
    const { host, username } = new URL(gateway.url)
    assert.equal(members.length, 3)
    assert.match(await (await fetch(`http://${host}/`)).text(), /<Buckets><\/Buckets>/)
    const signedWrongly = await fetch(
      `http://${host}/?AWSAccessKeyId=${username}&Expires=4000000000&Signature=none`,
    )
    assert.match(await signedWrongly.text(), /SignatureDoesNotMatch/)
  })
})
