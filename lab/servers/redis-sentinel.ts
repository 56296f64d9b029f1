import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { need } from '../obtain/find.ts'
import { type Cluster, clusterOf, orStop } from './cluster.ts'
import { claimPort, host } from './ports.ts'
import { type RedisPair, startRedisPair } from './redis.ts'
import { redisCall } from './resp.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'

export interface WatchedRedis extends Cluster {
  readonly pair: RedisPair
  readonly sentinel: Server
  /** The primary's name at the sentinels. */
  readonly group: string
}

const group = 'locks'

/** A primary, its replica, and a Sentinel that promotes the replica half a second after the primary is gone. */
export async function startWatchedRedis(): Promise<WatchedRedis> {
  const pair = await startRedisPair()
  const sentinel = await orStop(pair, startSentinel(pair))
  const all = clusterOf('redis-sentinel', 'redis', [sentinel, ...pair.members])
  return { ...all, pair, sentinel, group }
}

async function startSentinel({ primary }: RedisPair): Promise<Server> {
  const port = await claimPort()
  const folder = newFolder('redis-sentinel')
  const settings = join(folder, 'sentinel.conf')
  // It writes what it learns into this very file.
  writeFileSync(
    settings,
    [
      `port ${port}`,
      `bind ${host}`,
      `dir ${folder}`,
      `sentinel monitor ${group} ${primary.host} ${primary.port} 1`,
      `sentinel down-after-milliseconds ${group} 500`,
      `sentinel failover-timeout ${group} 3000`,
      '',
    ].join('\n'),
  )
  const address = { host, port }
  return startServer({
    name: 'redis-sentinel',
    url: `redis://${host}:${port}`,
    port,
    folder,
    program: need('redis').path,
    arguments: [settings, '--sentinel'],
    quit: 'SIGTERM',
    async ready() {
      const replicas = await redisCall(address, 'SENTINEL', 'REPLICAS', group)
      return Array.isArray(replicas) && replicas.length > 0
    },
  })
}
