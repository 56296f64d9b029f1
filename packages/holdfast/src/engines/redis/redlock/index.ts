/**
 * Locks on several Redis servers that know nothing of each other: a majority decides, so locks go on while a minority
 * is down. It issues no fencing tokens, so its leases are no proof for a guard, by type.
 *
 * ```ts
 * const clients = ['a', 'b', 'c', 'd', 'e'].map((host) => new Redis({ host }))
 * const locker = createLocker(redlock({ clients }))
 * ```
 */
import type { Backend } from '../../../spi.ts'
import { openRedlock, type RedlockOptions } from './assemble.ts'

export type { IoRedisClient, NodeRedisClient, RedisClient } from '../client/index.ts'
export type { RedlockOptions } from './assemble.ts'

declare module '../../../base/events.ts' {
  interface WarningCodes {
    HOLDFAST_REDLOCK_NO_VOTE: true
  }
}

/** Sends nothing yet: the servers are asked when the first session is opened. */
export function redlock(options: RedlockOptions): Backend<'unfenced'> {
  return openRedlock(options)
}
