/** Types that must not compile, and types that must. Checked by the type check of the repository; never run. */
import type { Cluster, Redis } from 'ioredis'
import type { Redis as Redis5 } from 'ioredis5'
import type { createClient, createCluster } from 'redis'
import type { createClient as createClient5 } from 'redis5'
import type { FencedLease } from '../../../base/types.ts'
import { createLocker } from '../../../locker/locker.ts'
import { redlock } from '../redlock/index.ts'
import { type RedisGuard, redisGuard } from './redis-guard.ts'

declare const ioredis: Redis
declare const lease: FencedLease
declare const guard: RedisGuard

export function clients(
  ioredisCluster: Cluster,
  ioredis5: Redis5,
  nodeRedis: ReturnType<typeof createClient>,
  nodeRedisCluster: ReturnType<typeof createCluster>,
  nodeRedis5: ReturnType<typeof createClient5>,
): void {
  for (const client of [ioredis, ioredisCluster, ioredis5, nodeRedis, nodeRedisCluster, nodeRedis5])
    redisGuard({ client, tag: 'a' })
  // @ts-expect-error an address is not a client
  redisGuard({ client: 'redis://localhost' })
}

export async function effects(): Promise<void> {
  const value: string | null = await guard.get(lease, 'key')
  const count: bigint = await guard.increment(lease, 'key', 5)
  const result: number = await guard.run(lease, async (tx) => Number(await tx.get('key')))
  void [value, count, result]
  // @ts-expect-error values are strings
  await guard.set(lease, 'key', 5)
  // @ts-expect-error a transaction has no commands of its own choice: they belong into evaluate
  await guard.run(lease, (tx) => tx.hset('key', 'field', 'value'))
}

export async function redlockIsNoProof(): Promise<void> {
  const locker = createLocker(redlock({ clients: [ioredis] }))
  // @ts-expect-error Redlock issues no fencing token
  await locker.withLease('x', (held) => guard.run(held, async () => {}))
  // @ts-expect-error Redlock issues no fencing token
  await locker.withLease('x', (held) => guard.set(held, 'key', 'value'))
}
