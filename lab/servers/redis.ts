import type { Clock } from '../faults/clock-shim.ts'
import { need } from '../obtain/find.ts'
import { type Cluster, clusterOf, orStop, startTogether } from './cluster.ts'
import { claimPort, host } from './ports.ts'
import { redisCall } from './resp.ts'
import { newFolder } from './run.ts'
import { type Server, startServer } from './server.ts'

export interface RedisOptions {
  readonly name?: string
  /** Persistence over a crash: nothing (the default), the last snapshot, or every write. */
  readonly persistence?: 'none' | 'snapshots' | 'every-write'
  /** The primary to follow; the address of a proxy will do. */
  readonly replicaOf?: { readonly host: string; readonly port: number }
  /** A clock that can be stepped while the server runs. */
  readonly clock?: Clock
  /** Further settings, as in its configuration file. */
  readonly settings?: Readonly<Record<string, string>>
  readonly otherPorts?: readonly number[]
}

const persistences = {
  none: { save: '', appendonly: 'no' },
  snapshots: { save: '1 1', appendonly: 'no' },
  'every-write': { save: '', appendonly: 'yes', appendfsync: 'always' },
}

export async function startRedis(options: RedisOptions = {}): Promise<Server> {
  const { name = 'redis', persistence = 'none', replicaOf, clock, settings, otherPorts } = options
  const { path: program } = need('redis')
  const port = await claimPort()
  const address = { host, port }
  const folder = newFolder(name)
  const all: Record<string, string> = {
    port: String(port),
    bind: host,
    dir: folder,
    daemonize: 'no',
    // The default waits 5 s for more replicas to come.
    'repl-diskless-sync-delay': '0',
    ...persistences[persistence],
    ...(replicaOf ? { replicaof: `${replicaOf.host} ${replicaOf.port}` } : {}),
    ...settings,
  }
  return startServer({
    name,
    url: `redis://${host}:${port}`,
    port,
    ...(otherPorts ? { otherPorts } : {}),
    folder,
    program,
    arguments: Object.entries(all).flatMap(([key, value]) => [`--${key}`, ...splitSetting(key, value)]),
    ...(clock ? { environment: clock.environment } : {}),
    quit: 'SIGTERM',
    async ready() {
      if (!replicaOf) return (await redisCall(address, 'PING')) === 'PONG'
      return String(await redisCall(address, 'INFO', 'replication')).includes('master_link_status:up')
    },
  })
}

/** On the command line `replicaof host port` is three words, but the value of `save` is one. */
function splitSetting(key: string, value: string): string[] {
  return key === 'replicaof' ? value.split(' ') : [value]
}

/** Servers that know nothing of each other, as Redlock wants them. */
export async function startRedisNodes(count: number, options: RedisOptions = {}): Promise<Cluster> {
  const starting = Array.from({ length: count }, (_, index) =>
    startRedis({ ...options, name: `${options.name ?? 'redis'}-${index + 1}` }),
  )
  return clusterOf('redis-nodes', 'redlock', await startTogether(starting))
}

export interface RedisPair extends Cluster {
  readonly primary: Server
  readonly replica: Server
}

/** A primary, and a replica that has caught up with it. */
export async function startRedisPair(options: RedisOptions = {}): Promise<RedisPair> {
  const primary = await startRedis({ ...options, name: 'redis-primary' })
  const replica = await orStop(primary, startRedis({ ...options, name: 'redis-replica', replicaOf: primary }))
  return { ...clusterOf('redis-pair', 'redis', [primary, replica]), url: primary.url, primary, replica }
}
