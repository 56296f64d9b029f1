/** All engines that scenarios run on. A client process loads only the one that it needs, with its client library. */
import type { Engine, EngineName } from './engine.ts'

const loaders: { readonly [Name in EngineName]: () => Promise<Engine> } = {
  sqlite: async () => (await import('./sqlite.ts')).sqliteEngine,
  redis: async () => (await import('./redis.ts')).redisEngine,
  redlock: async () => (await import('./redlock.ts')).redlockEngine,
  postgres: async () => (await import('./postgres.ts')).postgresEngine,
  etcd: async () => (await import('./etcd.ts')).etcdEngine,
  zookeeper: async () => (await import('./zookeeper.ts')).zooKeeperEngine,
  consul: async () => (await import('./consul.ts')).consulEngine,
  'postgres-advisory': async () => (await import('./postgres-advisory.ts')).postgresAdvisoryEngine,
}

export const engineNames = Object.keys(loaders) as EngineName[]

export function isEngineName(name: string): name is EngineName {
  return Object.hasOwn(loaders, name)
}

export function loadEngine(name: EngineName): Promise<Engine> {
  return loaders[name]()
}
