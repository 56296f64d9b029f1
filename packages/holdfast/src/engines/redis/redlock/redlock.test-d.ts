/** Types that must not compile, and types that must. Checked by the type check of the repository; never run. */
import type { Redis as IoRedis } from 'ioredis'
import type { Redis as IoRedis5 } from 'ioredis5'
import type { createClient } from 'redis'
import type { createClient as createClient5 } from 'redis5'
import type { Guard } from '../../../guards/guard.ts'
import { createLocker } from '../../../locker/locker.ts'
import { redlock } from './index.ts'

declare const ioredis: IoRedis
declare const ioredis5: IoRedis5
declare const nodeRedis: ReturnType<typeof createClient>
declare const nodeRedis5: ReturnType<typeof createClient5>
declare const guard: Guard<object>

export async function leasesAreNoProof(): Promise<void> {
  const locker = createLocker(redlock({ clients: [ioredis, ioredis5, nodeRedis, nodeRedis5] }))
  const lease = await locker.acquire('x')
  const none: undefined = lease.fence
  void none
  // @ts-expect-error Redlock issues no fencing token
  await guard.run(lease, async () => {})
  // @ts-expect-error Redlock issues no fencing token
  await locker.withLease('x', (held) => guard.run(held, async () => {}))
  // @ts-expect-error Redlock issues no fencing token, so there is none to check
  await locker.check(lease.fence)
}

export function options(): void {
  // @ts-expect-error one client for each node
  redlock({ client: ioredis })
  // @ts-expect-error the units are in the name
  redlock({ clients: [ioredis], nodeTimeout: 50 })
  // @ts-expect-error Redlock issues no tokens
  redlock({ clients: [ioredis], issuer: 'the bank' })
}
