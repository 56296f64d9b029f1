// Everything that the harness can start, by name: for `npm run servers`, and for tests that want one of each.

import type { Engine } from '../obtain/engines.ts'
import { startAzurite } from './azurite.ts'
import { startTogether } from './cluster.ts'
import { startConsul } from './consul.ts'
import { startEtcd } from './etcd.ts'
import { startPooledPostgres } from './pgbouncer.ts'
import { startPostgres } from './postgres.ts'
import { startRadosgw } from './radosgw.ts'
import { startRedis, startRedisNodes, startRedisPair } from './redis.ts'
import { startRedisCluster } from './redis-cluster.ts'
import { startZooKeeper } from './zookeeper.ts'

const starts = {
  redis: () => startRedis(),
  'redis-pair': () => startRedisPair(),
  'redis-nodes': () => startRedisNodes(5),
  'redis-cluster': () => startRedisCluster(),
  etcd: () => startEtcd(),
  'etcd-cluster': () => startEtcd({ members: 3 }),
  zookeeper: () => startZooKeeper(),
  'zookeeper-cluster': () => startZooKeeper({ members: 3 }),
  postgres: () => startPostgres(),
  pgbouncer: () => startPooledPostgres(),
  consul: () => startConsul(),
  'consul-cluster': () => startConsul({ members: 3 }),
  azurite: () => startAzurite(),
  radosgw: () => startRadosgw(),
}

export type LotName = keyof typeof starts
export type Lot = { [Name in LotName]: Awaited<ReturnType<(typeof starts)[Name]>> }

export const lotNames = Object.keys(starts) as LotName[]

export function engineOf(name: LotName): Engine {
  return name.split('-')[0] as Engine
}

/** Starts these, all at once. `onStarted` hears of each as soon as it is ready. */
export async function startLot<Name extends LotName>(
  names: readonly Name[],
  onStarted: (name: Name) => void = () => {},
): Promise<Pick<Lot, Name>> {
  const started = await startTogether<Lot[LotName]>(
    names.map(async (name) => {
      const one = await starts[name]()
      onStarted(name)
      return one
    }),
  )
  return Object.fromEntries(names.map((name, index) => [name, started[index]])) as Pick<Lot, Name>
}
