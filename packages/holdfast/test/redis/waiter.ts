/** Waits for a name, and is killed while it does: `node waiter.ts <url> <name> <ttlMs>`. */
import { Redis } from 'ioredis'
import { redis } from '../../src/engines/redis/locks/index.ts'
import { createLocker } from '../../src/locker/locker.ts'

const [url = '', name = '', ttlMs = '2000'] = process.argv.slice(2)
const locker = createLocker(redis({ client: new Redis(url) }), { ttlMs: Number(ttlMs), holder: 'dying' })
await locker.acquire(name, { waitMs: Number.POSITIVE_INFINITY })
