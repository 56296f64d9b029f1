/** Acquires a lock, says so, and holds it until it is killed. */
import { openSqlite } from '../../../src/engines/sqlite/locks/assemble.ts'
import { createLocker } from '../../../src/locker/locker.ts'

const [path = '', name = '', ttlMs = ''] = process.argv.slice(2)

const locker = createLocker(openSqlite({ path }), { ttlMs: Number(ttlMs) })
const lease = await locker.acquire(name)
console.log(`held ${lease.fence.token}`)
// Referred to for as long as the process lives, or the garbage collector would release it.
setInterval(() => lease.state, 60_000)
