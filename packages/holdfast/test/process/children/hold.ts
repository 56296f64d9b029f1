/** Takes everything that has timers, and then has nothing more to do. */
import { openClient } from './backends.ts'

const locker = openClient({ ttlMs: 3_600_000 })
const lease = await locker.acquire('held', { maxHoldMs: 1_800_000, warnHoldMs: 60_000 })
const permit = await locker.acquirePermits('permits', { capacity: 2, ttlMs: 600_000 })
// A wait that is no longer awaited leaves nothing behind that would keep the process.
await openClient()
  .acquire('held', { waitMs: 10 })
  .catch(() => {})
await lease.renew()
console.log(lease.state, permit.state)
