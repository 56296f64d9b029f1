/** `redis://host:port`, and the forms for Cluster and Sentinel that `clients/redis` reads. */
import { InvalidArgumentError } from '../../base/errors.ts'
import { redisClientFromUrl } from '../../clients/redis/index.ts'
import { asCount, asOneOf, type LockerUrl, onOwnClient } from '../../kit/url.ts'
import type { Backend, Fencing } from '../../spi.ts'
import { openRedis } from './assemble.ts'

interface Parameters {
  readonly fencing: 'clock-backed'
  readonly waitReplicas: number
  readonly waitTimeoutMs: number
}

const DEFAULT_WAIT_MS = 1_000

export async function openFromUrl(url: LockerUrl): Promise<Backend<Fencing>> {
  const { parameters } = url
  if (parameters.has('waitTimeoutMs') && !parameters.has('waitReplicas'))
    throw new InvalidArgumentError(
      'url',
      'has the parameter "waitTimeoutMs" without "waitReplicas": there is nothing to wait for.',
    )
  const {
    waitReplicas: count,
    waitTimeoutMs: timeoutMs = DEFAULT_WAIT_MS,
    ...options
  } = url.options<Parameters>({
    fencing: asOneOf('clock-backed'),
    waitReplicas: asCount,
    waitTimeoutMs: asCount,
  })
  const { client, close } = await redisClientFromUrl(url.scheme, url.location, {
    ioredis: () => url.loadPeer('ioredis'),
    redis: () => url.loadPeer('redis'),
  })
  return onOwnClient(close, () =>
    openRedis(
      { ...options, ...(count !== undefined && { waitReplicas: { count, timeoutMs } }), client },
      { closeClient: close },
    ),
  )
}
