/** Which library a client is of. */
import { InvalidArgumentError } from '../../../base/errors.ts'
import type { IoRedisClient, NodeRedisClient, RedisClient } from './client.ts'
import { adaptIoRedis } from './ioredis.ts'
import { adaptNodeRedis } from './node-redis.ts'
import type { RawRedis } from './raw.ts'

/** The options must be an object that has the client, and not the client itself. */
export function checkClientOptions(argument: string, options: unknown): void {
  if (isRedisClient(options))
    throw new InvalidArgumentError(
      argument,
      'must be an object with a client: pass { client: … } instead of the client.',
    )
  if (typeof options !== 'object' || options === null)
    throw new InvalidArgumentError(argument, 'must be an object with a client.')
}

export function isRedisClient(value: unknown): value is RedisClient {
  return isIoRedis(value) || isNodeRedis(value)
}

function isIoRedis(client: unknown): client is IoRedisClient {
  return has(client, 'evalsha', 'call', 'duplicate')
}

/** A pool has no connection of its own whose order of commands could be relied on. */
function isNodeRedis(client: unknown): client is NodeRedisClient {
  return has(client, 'evalSha', 'sendCommand', 'duplicate', 'withTypeMapping') && !has(client, 'execute')
}

function has(client: unknown, ...methods: string[]): boolean {
  if (typeof client !== 'object' || client === null) return false
  return methods.every((method) => typeof (client as Record<string, unknown>)[method] === 'function')
}

export function adapt(client: unknown): RawRedis {
  if (isIoRedis(client)) return adaptIoRedis(client)
  if (isNodeRedis(client)) return adaptNodeRedis(client)
  throw new InvalidArgumentError(
    'client',
    'must be a Redis or Cluster of ioredis (5 or 6), or what createClient or createCluster of node-redis (redis 5 or 6) ' +
      'returned.',
  )
}
