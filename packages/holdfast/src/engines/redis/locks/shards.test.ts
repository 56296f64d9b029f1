/** A Cluster, part by part: what one primary does does not concern the others. */
import assert from 'node:assert/strict'
import { type Cluster, redisCall, startRedisCluster, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { libraryNamed } from '../../../../test/redis/clients.ts'
import { clusterUrls } from '../../../../test/redis/guard-world.ts'
import { until } from '../../../../test/redis/rig.ts'
import { createLocker } from '../../../locker/locker.ts'
import { openRedis } from './assemble.ts'

const names = Array.from({ length: 40 }, (_, index) => `name ${index}`)

describe.runIf(wanted('redis')).each(['ioredis 6', 'node-redis 6'])(
  'the primaries of a Cluster: %s',
  (library) => {
    let cluster: Cluster
    beforeAll(async () => {
      cluster = await startRedisCluster({ settings: { 'cluster-require-full-coverage': 'no' } })
    })
    afterAll(() => cluster?.stop())

    const onEach = <T>(...command: readonly (string | number)[]) =>
      Promise.all(cluster.members.map((member) => redisCall(member, ...command) as Promise<T>))

    test('T16 G10 one that is silent costs the leases that it has, and no others', async () => {
      const { client, close } = await libraryNamed(library).openCluster(clusterUrls(cluster))
      const locker = createLocker(openRedis({ client }), { ttlMs: 4_000 })
      const leases = await Promise.all(names.map((name) => locker.acquire(name)))
      const keys = await onEach<string[]>('KEYS', '*')
      const at = keys.findIndex((each) => !each.some((key) => key.includes(':session:')))
      const isAtTheSilent = ({ name }: { name: string }) => keys[at]?.includes(`holdfast:default:{${name}}`)
      const [theirs, others] = [leases.filter(isAtTheSilent), leases.filter((each) => !isAtTheSilent(each))]
      assert(theirs.length > 0 && others.length > 0)
      const silent = cluster.members[at]
      assert(silent !== undefined)
      await silent.pause()
      try {
        await until('its leases are lost', () => theirs.every(({ state }) => state === 'lost'))
        for (const other of others) {
          await other.renew()
          assert.equal(other.state, 'held')
        }
      } finally {
        await silent.resume()
      }
      await locker.close({ graceMs: 0 })
      close()
    })
  },
)
