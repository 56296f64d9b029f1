/**
 * Opens a locker from a URL, uses it at SIGUSR2 and closes it at SIGTERM; nothing else ends the process.
 * `node closing.ts <url> <ioredis | redis>`
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
const backend = openRedis({ client }, { closeClient: close })
const locker = createLocker(backend, { callTimeoutMs: 500 })
process.on('SIGUSR2', () => void locker.tryAcquire('x').catch(() => {}))
// The locker does not keep the process alive until it is asked for something.
const alive = setInterval(() => {}, 60_000)
process.once('SIGTERM', async () => {
  clearInterval(alive)
  await locker.close({ graceMs: 0 })
  console.log('closed')
})
console.log('open')
