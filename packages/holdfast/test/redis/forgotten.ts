/** Uses a lock and closes its own client, but never the locker: the process must end all the same. */
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { redis } from '../../src/engines/redis/locks/index.ts'
import { createLocker } from '../../src/locker/locker.ts'

const [url = ''] = process.argv.slice(2)
const io = new Redis(url)
const node = createClient({ url })
await node.connect()
for (const client of [io, node]) {
  const lease = await createLocker(redis({ client })).acquire('x')
  await lease.release()
}
io.disconnect()
node.destroy()
console.log('done')
