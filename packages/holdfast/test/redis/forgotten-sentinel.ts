/**
 * Uses a lock behind Sentinel and closes its own client, but never the locker: the process must end all the same.
 * `node forgotten-sentinel.ts <ioredis | node-redis> <host> <port> <group>`
 */
import { Redis } from 'ioredis'
import { createSentinel } from 'redis'
import { redis } from '../../src/backends/redis/index.ts'
import { createLocker } from '../../src/locker/locker.ts'

const [library, host = '', port, group = ''] = process.argv.slice(2)
const node = { host, port: Number(port) }
const waitReplicas = { count: 1, timeoutMs: 5_000 }
if (library === 'ioredis') {
  const client = new Redis({ sentinels: [node], name: group })
  await (await createLocker(redis({ client, waitReplicas })).acquire('x')).release()
  client.disconnect()
} else {
  const client = createSentinel({ name: group, sentinelRootNodes: [node] })
  await client.connect()
  await (await createLocker(redis({ client, waitReplicas })).acquire('x')).release()
  await client.destroy()
}
console.log('done')
