// A member is paused or cut off from its peers, while clients still reach it.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'vitest'
import {
  connectRedis,
  connectZooKeeper,
  type EtcdCluster,
  fetchJson,
  noNode,
  redisCall,
  type Server,
  startConsul,
  startEtcd,
  startRedis,
  startZooKeeper,
  waitFor,
  wanted,
  type ZooKeeperClient,
  type ZooKeeperError,
} from '../servers/index.ts'
import { kill, pause, resume, startProxy } from './index.ts'

const base64 = (text: string) => Buffer.from(text).toString('base64')

function put(member: Server, value: string): Promise<unknown> {
  const body = JSON.stringify({ key: base64('key'), value: base64(value) })
  return fetchJson(`${member.url}/v3/kv/put`, { method: 'POST', body })
}

async function get(member: Server, serializable: boolean): Promise<string | null> {
  const body = JSON.stringify({ key: base64('key'), serializable })
  const answer = await fetchJson<{ kvs?: { value: string }[] }>(`${member.url}/v3/kv/range`, {
    method: 'POST',
    body,
  })
  const [found] = answer.kvs ?? []
  return found ? Buffer.from(found.value, 'base64').toString() : null
}

async function otherLeader({ leader }: EtcdCluster, old: Server): Promise<Server> {
  return waitFor('another leader', async () => {
    const now = await leader()
    return now !== old && now
  })
}

describe.concurrent('pause', () => {
  test.runIf(wanted('redis'))(
    'Redis: a paused server answers nothing, and everything when it goes on',
    async () => {
      await using redis = await startRedis()
      using client = await connectRedis(redis)
      await redis.pause()
      let answered = false
      const call = client.call('INCR', 'paused').finally(() => {
        answered = true
      })
      // A connection is still made: that is the kernel's work. So this is no proof of life.
      using second = await connectRedis(redis)
      await new Promise((resolve) => setTimeout(resolve, 100))
      assert.equal(answered, false)
      await redis.resume()
      assert.equal(await call, 1)
      assert.equal(await second.call('GET', 'paused'), '1')
    },
  )

  test.runIf(wanted('etcd'))('etcd: a paused leader is replaced, and finds that out', async () => {
    await using etcd = await startEtcd({ members: 3 })
    const old = await etcd.leader()
    await put(old, 'before')
    await old.pause()
    const now = await otherLeader(etcd, old)
    await put(now, 'after')
    await old.resume()
    await waitFor('the old leader to follow', async () => (await get(old, false)) === 'after')
  })

  test.runIf(wanted('consul'))('Consul: a paused leader is replaced', async () => {
    await using consul = await startConsul({ members: 3 })
    const old = await consul.leader()
    await old.pause()
    await waitFor('another leader', async () => (await consul.leader()) !== old)
  })

  test('a worker of the test itself stands still and goes on', async () => {
    const counter = `setInterval(() => console.log('tick'), 5)`
    const worker = spawn(process.execPath, ['-e', counter], { stdio: ['ignore', 'pipe', 'inherit'] })
    let ticks = 0
    worker.stdout.on('data', (chunk: Buffer) => {
      ticks += chunk.toString().split('tick').length - 1
    })
    await waitFor('the worker to start', async () => ticks > 0)
    await pause(worker)
    // Bytes written before may still be on their way.
    await new Promise((resolve) => setTimeout(resolve, 50))
    const paused = ticks
    await new Promise((resolve) => setTimeout(resolve, 100))
    assert.equal(ticks, paused)
    resume(worker)
    await waitFor('the worker to go on', async () => ticks > paused)
    const exited = once(worker, 'exit')
    await kill(worker)
    assert.deepEqual(await exited, [null, 'SIGKILL'])
    await assert.rejects(pause(worker), /does not run/)
  })
})

describe.concurrent('cut off', () => {
  test.runIf(wanted('etcd'))(
    'etcd: a leader cut off from its peers serves old values, and commits nothing',
    async () => {
      await using etcd = await startEtcd({ members: 3, partitions: true })
      const old = await etcd.leader()
      await put(old, 'before')
      await etcd.cutOff(old)
      const now = await otherLeader(etcd, old)
      await put(now, 'after')
      assert.equal(await get(now, false), 'after')
      assert.equal(await get(old, true), 'before')
      await assert.rejects(get(old, false), 'a linearizable read needs the others')
      await assert.rejects(put(old, 'by the old one'))
      etcd.heal()
      await waitFor('the old leader to catch up', async () => (await get(old, true)) === 'after')
    },
  )

  test.runIf(wanted('zookeeper'))(
    'ZooKeeper: a follower cut off goes on answering, with old values',
    async () => {
      await using ensemble = await startZooKeeper({ members: 3, partitions: true })
      const leader = await ensemble.leader()
      const follower = ensemble.members.find((member) => member !== leader) as Server
      using writer = await connectZooKeeper(leader)
      using reader = await connectZooKeeper(follower)
      await writer.create('/value', 'before')
      await waitFor('the follower to see it', async () => (await reader.get('/value')).data === 'before')
      ensemble.cutOff(follower)
      await writer.set('/value', 'after')
      await reader.ping()
      assert.equal((await reader.get('/value')).data, 'before')
      ensemble.heal()
      await waitFor('the follower to catch up', async () => {
        using again = await connectZooKeeper(follower)
        return (await again.get('/value')).data === 'after'
      })
    },
  )

  test.runIf(wanted('zookeeper'))(
    'ZooKeeper: a stall in one direction keeps back what one member sends to another, and nothing else',
    async () => {
      await using ensemble = await startZooKeeper({ members: 3, partitions: true })
      const leader = await ensemble.leader()
      const follower = ensemble.members.find((member) => member !== leader) as Server
      const patience = { patienceMs: 60_000 }
      using atLeader = await connectZooKeeper(leader, patience)
      using atFollower = await connectZooKeeper(follower, patience)
      // A client's own reads wait behind its writes.
      using another = await connectZooKeeper(follower, patience)
      const isSeen = (client: ZooKeeperClient, path: string) =>
        client.get(path).then(
          () => true,
          (error: ZooKeeperError) => error.code !== noNode && Promise.reject(error),
        )
      const created = async (path: string) => {
        let isAnswered = false
        const creating = atFollower.create(path).then(() => {
          isAnswered = true
        })
        return { creating, isAnswered: () => isAnswered }
      }

      ensemble.stall(leader, follower)
      const unheard = await created('/unheard')
      await waitFor('the leader to have it', () => isSeen(atLeader, '/unheard'))
      assert.equal(unheard.isAnswered(), false)
      assert.equal(await isSeen(another, '/unheard'), false)
      ensemble.heal()
      await unheard.creating

      ensemble.stall(follower, leader)
      const unsaid = await created('/unsaid')
      await atLeader.create('/said')
      await waitFor('the follower to hear of it', () => isSeen(another, '/said'))
      assert.equal(await isSeen(atLeader, '/unsaid'), false)
      assert.equal(unsaid.isAnswered(), false)
      ensemble.heal()
      await unsaid.creating
    },
  )

  test.runIf(wanted('redis'))('Redis: a replica cut off is promoted without the last writes', async () => {
    await using primary = await startRedis()
    await using link = await startProxy(primary)
    await using replica = await startRedis({ name: 'replica', replicaOf: link })
    using client = await connectRedis(primary)
    await client.call('SET', 'early', '1')
    // WAIT is about the writes of its own connection.
    assert.equal(await client.call('WAIT', 1, 30_000), 1)
    link.blackhole()
    await client.call('SET', 'late', '1')
    await primary.kill()
    await redisCall(replica, 'REPLICAOF', 'NO', 'ONE')
    assert.equal(await redisCall(replica, 'GET', 'early'), '1')
    assert.equal(await redisCall(replica, 'GET', 'late'), null)
  })
})
