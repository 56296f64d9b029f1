/** Everything that clients of a scenario can protect. */
import type { Resource, ResourceName } from './resource.ts'

const loaders: { readonly [Name in ResourceName]: () => Promise<Resource> } = {
  postgres: async () => (await import('./postgres.ts')).postgresResource,
  redis: async () => (await import('./redis.ts')).redisResource,
  sqlite: async () => (await import('./sqlite.ts')).sqliteResource,
}

export function loadResource(name: ResourceName): Promise<Resource> {
  return loaders[name]()
}
