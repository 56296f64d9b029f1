import { type Cluster, clusterOf, orStop, startTogether } from './cluster.ts'
import { claimPort } from './ports.ts'
import { type RedisOptions, startRedis } from './redis.ts'
import { redisCall } from './resp.ts'
import type { Server } from './server.ts'
import { waitFor } from './wait.ts'

const slots = 16_384

/** Redis Cluster with primaries only, each with its share of the slots. */
export async function startRedisCluster({
  primaries = 3,
  ...options
}: RedisOptions & { primaries?: number } = {}): Promise<Cluster> {
  const members = await startTogether(Array.from({ length: primaries }, (_, i) => startMember(i, options)))
  const cluster = clusterOf('redis-cluster', 'redis', members)
  await orStop(cluster, join(members))
  return cluster
}

async function startMember(index: number, options: RedisOptions): Promise<Server> {
  const bus = await claimPort()
  return startRedis({
    ...options,
    name: `redis-cluster-${index + 1}`,
    otherPorts: [bus],
    settings: {
      'cluster-enabled': 'yes',
      'cluster-port': String(bus),
      'cluster-node-timeout': '2000',
      ...options.settings,
    },
  })
}

async function join(members: readonly Server[]): Promise<void> {
  const [first] = members
  if (first === undefined) throw new Error('a cluster needs members')
  const firstSlot = (index: number) => Math.floor((slots * index) / members.length)
  for (const [index, member] of members.entries()) {
    await redisCall(member, 'CLUSTER', 'ADDSLOTSRANGE', firstSlot(index), firstSlot(index + 1) - 1)
    // Two nodes of the same epoch would first have to settle which of them is right.
    await redisCall(member, 'CLUSTER', 'SET-CONFIG-EPOCH', index + 1)
    const bus = Number(((await redisCall(member, 'CONFIG', 'GET', 'cluster-port')) as string[])[1])
    if (member !== first) await redisCall(first, 'CLUSTER', 'MEET', member.host, member.port, bus)
  }
  // Every member must know every other and all slots: a client may ask any of them.
  await waitFor('the members of Redis Cluster to agree', async () => {
    const views = await Promise.all(
      members.map(async (member) => [
        String(await redisCall(member, 'CLUSTER', 'INFO')),
        String(await redisCall(member, 'CLUSTER', 'NODES')),
      ]),
    )
    return views.every(
      ([info = '', nodes = '']) =>
        info.includes('cluster_state:ok') &&
        info.includes(`cluster_known_nodes:${members.length}`) &&
        // Published messages would not reach a node without a link, and a member whose clock stands still makes none.
        !/handshake|disconnected/.test(nodes),
    )
  })
}
