/** The guard with the older of the supported client libraries; in a file of its own, so that it runs beside the others. */
import { type Cluster, type Server, startRedis, startRedisCluster, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { libraryNamed } from '../../../../test/redis/clients.ts'
import { clusterUrls, redisGuardWorld } from '../../../../test/redis/guard-world.ts'
import { describeGuard } from '../../../testing/describe-guard.ts'

describe.runIf(wanted('redis'))('redisGuard with older clients', () => {
  let server: Server
  let cluster: Cluster
  beforeAll(async () => {
    ;[server, cluster] = await Promise.all([startRedis(), startRedisCluster()])
  })
  afterAll(() => Promise.all([server?.stop(), cluster?.stop()]))

  for (const library of ['ioredis 5', 'node-redis 5'].map(libraryNamed)) {
    describeGuard({
      name: `redisGuard with ${library.name}`,
      describe,
      test,
      createWorld: () => redisGuardWorld(() => library.open(server.url)),
    })
    describeGuard({
      name: `redisGuard with ${library.name} on a Cluster`,
      describe,
      test,
      createWorld: () => redisGuardWorld(() => library.openCluster(clusterUrls(cluster))),
    })
  }
})
