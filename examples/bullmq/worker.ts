/** A worker of BullMQ. Its job charges an order; the account is in Redis. */
import { readSync } from 'node:fs'
import { Worker } from 'bullmq'
import { createLocker, isHoldfastError } from 'holdfast'
import { redisGuard } from 'holdfast/guards/redis'
import { redis } from 'holdfast/redis'
import { Redis } from 'ioredis'

export interface Charge {
  readonly order: string
  readonly cents: number
  readonly how: 'job alone' | 'lease and guard'
}
export type Told =
  | { readonly kind: 'ready' }
  | { readonly kind: 'about-to-charge' }
  | { readonly kind: 'refused' }
  | { readonly kind: 'ended' }

const [queue = '', prefix = '', url = ''] = process.argv.slice(2)
const client = new Redis(url, { maxRetriesPerRequest: null })
// A service would leave the TTL at 15 s. Here the reader waits until the frozen worker is given up.
const locker = createLocker(redis({ client, fencing: 'clock-backed', namespace: prefix }), { ttlMs: 1_000 })
const guard = redisGuard({ client })
const keyOf = (order: string) => `${prefix}:charged:${order}`

/** How many pages do it: the job is locked by BullMQ, so it is safe, is it not? */
async function charge({ order, cents }: Charge): Promise<void> {
  if ((await client.get(keyOf(order))) !== null) return
  holdBreath()
  await client.incrby(keyOf(order), cents)
}

/** The lease keeps others out, and the fence makes Redis refuse a worker that was frozen and overtaken. */
function chargeGuarded({ order, cents }: Charge): Promise<void> {
  return locker.withLease(`charge/${order}`, async (lease) => {
    if ((await guard.get(lease, keyOf(order))) !== null) return
    holdBreath()
    // `guard.evaluate(lease, …)` would also ask the lease, which knows by its own clock that it is late. The bare fence leaves
    // it to Redis, as if the freeze came after that last look at the clock.
    const script = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
    await guard.evaluate(lease.fence, script, { keys: [keyOf(order)], args: [cents] })
  })
}

/** Nothing runs in this process until it is answered: it is frozen, as by a long collection of garbage. */
function holdBreath(): void {
  tell({ kind: 'about-to-charge' })
  if (readSync(0, new Uint8Array(1)) !== 1) process.exit()
}

const worker = new Worker<Charge>(
  queue,
  async ({ data }) => {
    try {
      await (data.how === 'job alone' ? charge(data) : chargeGuarded(data))
    } catch (error) {
      const refusal = isHoldfastError(error, 'LEASE_LOST') ? error.cause : error
      if (!isHoldfastError(refusal, 'FENCE_STALE')) throw error
      tell({ kind: 'refused' })
    }
    tell({ kind: 'ended' })
  },
  // Short, so that a frozen worker is missed soon.
  { connection: client, lockDuration: 1_000, stalledInterval: 500, maxStalledCount: 3 },
)
// A worker that was overtaken cannot finish its job: that is told here, and is expected.
worker.on('error', () => {})
await worker.waitUntilReady()
process.on('disconnect', () => process.exit())
tell({ kind: 'ready' })

function tell(told: Told): void {
  process.send?.(told)
}
