/**
 * The part that we use of the user's client, as structural types: ioredis (5 and 6) and node-redis (5 and 6), connected
 * to one server, through Sentinel (ioredis), or to a Cluster. Holdfast imports neither library.
 *
 * The methods are declared with as little as tells the libraries apart; what we need to know of their arguments stands
 * with the adapters, `ioredis.ts` and `node-redis.ts`.
 */

/** A `Redis` or `Cluster` of ioredis. */
export interface IoRedisClient {
  readonly status: string
  call(...args: [command: string, ...args: string[]]): Promise<unknown>
  evalsha(...args: never[]): unknown
  duplicate(...args: never[]): unknown
  disconnect(...args: never[]): unknown
}

/** The client that `createClient` or `createCluster` of node-redis returned, connected. */
export interface NodeRedisClient {
  readonly isOpen: boolean
  sendCommand(...args: never[]): Promise<unknown>
  evalSha(...args: never[]): unknown
  duplicate(...args: never[]): unknown
  destroy(...args: never[]): unknown
}

export type RedisClient = IoRedisClient | NodeRedisClient
