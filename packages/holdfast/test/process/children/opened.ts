/** A locker as `openLocker` opens it, with the client library that is named: `openLocker` takes the first that is installed. */

import type { AnyLocker } from '../../../src/base/types.ts'
import { type RedisLibraries, redisClientFromUrl } from '../../../src/engines/redis/client/index.ts'
import { openRedis } from '../../../src/engines/redis/locks/assemble.ts'
import { openRedlock } from '../../../src/engines/redis/redlock/assemble.ts'
import { nodesFromUrl } from '../../../src/engines/redis/redlock/from-url.ts'
import { createLocker } from '../../../src/locker/locker.ts'
import { openLocker } from '../../../src/open.ts'

const missing = () => Promise.reject(Object.assign(new Error('not there'), { code: 'ERR_MODULE_NOT_FOUND' }))

/** Of each library the versions that we support. */
const libraries: Record<string, Partial<RedisLibraries>> = {
  'ioredis 5': { ioredis: () => import('ioredis5') },
  'node-redis 5': { redis: () => import('redis5') },
  'node-redis 6': { redis: () => import('redis') },
}

export async function open(url: string, library: string | undefined): Promise<AnyLocker> {
  const named = library === undefined ? undefined : libraries[library]
  if (named === undefined) return openLocker(url)
  const load = { ioredis: missing, redis: missing, ...named }
  const [scheme = '', location = ''] = url.replace(/\?.*/, '').split(/:(.*)/)
  if (scheme !== 'redlock') {
    const { client, close } = await redisClientFromUrl(scheme, location, load)
    return createLocker(openRedis({ client }, { closeClient: close })) as AnyLocker
  }
  const opened = await Promise.all(
    nodesFromUrl(location).map((node) =>
      redisClientFromUrl(node.scheme, node.location, load, { mayBeDown: true }),
    ),
  )
  const closeClients = async () => void (await Promise.all(opened.map(({ close }) => close())))
  const clients = opened.map(({ client }) => client)
  const backend = openRedlock({ clients, persistence: 'every-write' }, { closeClients })
  await backend.reach()
  return createLocker(backend) as AnyLocker
}
