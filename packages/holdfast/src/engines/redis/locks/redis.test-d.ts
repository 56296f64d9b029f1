/** Types that must compile and types that must not: checked by the compiler alone, never run. */
import type { Cluster, Redis } from 'ioredis'
import type { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5'
import type { createClient, createClientPool, createCluster } from 'redis'
import type { createClient as createClient5, createCluster as createCluster5 } from 'redis5'
import type { Guard } from '../../../guards/guard.ts'
import { createLocker } from '../../../locker/locker.ts'
import type { Backend } from '../../../spi.ts'
import { redis } from './index.ts'

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
declare function expectTrue<_T extends true>(): void
declare const guard: Guard<unknown>
declare const client: Redis
declare const asConfigured: 'clock-backed' | undefined

/** G12: without fencing a lease is no proof, by type. */
export async function fencing() {
  const unfenced = redis({ client })
  expectTrue<Equal<typeof unfenced, Backend<'unfenced'>>>()
  const lease = await createLocker(unfenced).acquire('x')
  // @ts-expect-error A lease without a token is not a proof.
  await guard.run(lease, async () => {})

  const fenced = redis({ client, fencing: 'clock-backed' })
  expectTrue<Equal<typeof fenced, Backend<'fenced'>>>()
  await guard.run(await createLocker(fenced).acquire('x'), async () => {})

  // @ts-expect-error There is no other way to make tokens.
  redis({ client, fencing: 'counter' })
}

/** Every supported client is taken as it is. */
export function clients(
  cluster: Cluster,
  redis5: Redis5,
  cluster5: Cluster5,
  node: ReturnType<typeof createClient>,
  nodeCluster: ReturnType<typeof createCluster>,
  node5: ReturnType<typeof createClient5>,
  nodeCluster5: ReturnType<typeof createCluster5>,
  pool: ReturnType<typeof createClientPool>,
) {
  for (const each of [client, cluster, redis5, cluster5, node, nodeCluster, node5, nodeCluster5])
    redis({ client: each })
  void pool
  // @ts-expect-error A URL is for openLocker.
  redis({ client: 'redis://localhost' })
  // @ts-expect-error A client is needed.
  redis({})
}

export function configured() {
  const either = redis({ client, ...(asConfigured && { fencing: asConfigured }) })
  return either
}
