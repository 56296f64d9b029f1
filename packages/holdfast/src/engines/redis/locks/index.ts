/**
 * Locks for all processes that reach one Redis primary, over the client that you already have.
 *
 * ```ts
 * import { Redis } from 'ioredis'
 *
 * const client = new Redis('redis://127.0.0.1:6379')
 * const locker = createLocker(redis({ client, fencing: 'clock-backed' }))
 * ```
 */
import type { Backend } from '../../../spi.ts'
import { openRedis, type RedisOptions } from './assemble.ts'

export type { IoRedisClient, NodeRedisClient, RedisClient } from '../client/index.ts'
export type { RedisOptions } from './assemble.ts'

declare module '../../../base/events.ts' {
  interface WarningCodes {
    HOLDFAST_REDIS_EVICTION: true
    HOLDFAST_REDIS_PERSISTENCE: true
    HOLDFAST_REDIS_UNCHECKED: true
    HOLDFAST_REDIS_CLOCK: true
  }
}

/** The server is looked at when the first session is opened; nothing is sent before. */
export function redis(options: RedisOptions & { readonly fencing: 'clock-backed' }): Backend<'fenced'>
export function redis(options: RedisOptions & { readonly fencing?: undefined }): Backend<'unfenced'>
export function redis(options: RedisOptions): Backend<'fenced'> | Backend<'unfenced'>
export function redis(options: RedisOptions): Backend<'fenced'> | Backend<'unfenced'> {
  return openRedis(options) as Backend<'fenced'> | Backend<'unfenced'>
}
