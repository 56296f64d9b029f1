/**
 * Uses a lock behind Sentinel and closes its own client, but never the locker: the process must end all the same.
 * `node forgotten-sentinel.ts <host> <port> <group>`
 */
import { Redis } from 'ioredis'
import { redis } from '../../src/engines/redis/locks/index.ts'
import { createLocker } from '../../src/locker/locker.ts'

const [host = '', port, group = ''] = process.argv.slice(2)
const client = new Redis({ sentinels: [{ host, port: Number(port) }], name: group })
await (await createLocker(redis({ client })).acquire('x')).release()
client.disconnect()
console.log('done')
