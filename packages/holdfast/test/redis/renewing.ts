/**
 * Holds a lease, renews it at SIGUSR2, and at SIGTERM says how many sockets keep the process alive.
 * `node renewing.ts <url> <ioredis | redis>`
 */

import { redisClientFromUrl } from '../../src/engines/redis/client/index.ts'
import { openRedis } from '../../src/engines/redis/locks/assemble.ts'
import { createLocker } from '../../src/locker/locker.ts'

const [url = '', library = ''] = process.argv.slice(2)
const missing = () => Promise.reject(Object.assign(new Error('not there'), { code: 'ERR_MODULE_NOT_FOUND' }))
const { client, close } = await redisClientFromUrl('redis', url.slice('redis:'.length), {
  ioredis: library === 'ioredis' ? () => import('ioredis') : missing,
  redis: () => import('redis'),
})
const locker = createLocker(openRedis({ client }, { closeClient: close }))
const lease = await locker.acquire(library, { ttlMs: 60_000 })
process.on('SIGUSR2', () => void lease.renew().catch(() => {}))
setInterval(() => {}, 60_000)
process.once('SIGTERM', () => {
  const sockets = process.getActiveResourcesInfo().filter((name) => /TCP/.test(name))
  console.log(`sockets ${sockets.length}`)
  process.exit()
})
console.log('open')
