/** `redis://host:port`, and the form for a Cluster that `engines/redis/client/from-url.ts` reads. */

import { loadPeer } from '../../../base/load-peer.ts'
import { asOneOf, type LockerUrl, onOwnClient } from '../../../kit/url.ts'
import type { Backend, Fencing } from '../../../spi.ts'
import { redisClientFromUrl } from '../client/index.ts'
import { openRedis } from './assemble.ts'

export async function openFromUrl(url: LockerUrl): Promise<Backend<Fencing>> {
  const options = url.options<{ readonly fencing: 'clock-backed' }>({ fencing: asOneOf('clock-backed') })
  const { client, close } = await redisClientFromUrl(url.scheme, url.location, {
    ioredis: () => loadPeer('ioredis'),
    redis: () => loadPeer('redis'),
  })
  return onOwnClient(close, () => openRedis({ ...options, client }, { closeClient: close }))
}
