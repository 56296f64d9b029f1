export { type Engine, engines } from '../obtain/engines.ts'
export { startAzurite } from './azurite.ts'
export type { Cluster } from './cluster.ts'
export { type ConsulCluster, type ConsulOptions, startConsul } from './consul.ts'
export { type EtcdCluster, type EtcdOptions, startEtcd } from './etcd.ts'
export { fetchJson } from './http.ts'
export { engineOf, type Lot, type LotName, lotNames, startLot } from './lot.ts'
export {
  type PgBouncerOptions,
  type PooledPostgres,
  startPgBouncer,
  startPooledPostgres,
} from './pgbouncer.ts'
export { type PostgresOptions, psql, startPostgres } from './postgres.ts'
export { treeOf } from './processes.ts'
export { type Judged, promtool } from './promtool.ts'
export { type Radosgw, startRadosgw } from './radosgw.ts'
export { type Reached, reach } from './reach.ts'
export { type RedisOptions, type RedisPair, startRedis, startRedisNodes, startRedisPair } from './redis.ts'
export { startRedisCluster } from './redis-cluster.ts'
export { startWatchedRedis, type WatchedRedis } from './redis-sentinel.ts'
export { connectRedis, type Reply, type RespClient, RespError, redisCall } from './resp.ts'
export { newFolder } from './run.ts'
export type { Server } from './server.ts'
export { type Patience, waitFor } from './wait.ts'
export { wanted } from './wanted.ts'
export {
  fourLetterWord,
  modeOf,
  startZooKeeper,
  type ZooKeeperEnsemble,
  type ZooKeeperOptions,
} from './zookeeper.ts'
export { connectZooKeeper, noNode, type ZooKeeperClient, ZooKeeperError } from './zookeeper-client.ts'
