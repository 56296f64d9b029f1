/** The document in a key of a Redis server of its own: whatever befalls the server that has the locks, this one stays. */
import { isHoldfastError } from '../../../packages/holdfast/src/base/errors.ts'
import type { Fence } from '../../../packages/holdfast/src/base/fence.ts'
import { redisGuard } from '../../../packages/holdfast/src/engines/redis/guard/redis-guard.ts'
import { startRedis } from '../../servers/index.ts'
import type { Addresses } from '../engines/engine.ts'
import { connect } from '../engines/redis-client.ts'
import {
  type Document,
  needFence,
  type OpenResource,
  type Protection,
  type Resource,
  UnknownOutcomeError,
} from './resource.ts'

const key = 'document'

export const redisResource: Resource = {
  name: 'redis',
  async start() {
    const server = await startRedis({ name: 'redis-resource' })
    return { addresses: [server.url], [Symbol.asyncDispose]: () => server.stop() }
  },
  async open([url = '']: Addresses, protection: Protection): Promise<OpenResource> {
    if (protection === 'compare-and-set') throw new Error('engines with a resource in Redis have a guard')
    const client = await connect(url)
    const guard = protection === 'guard' ? redisGuard({ client, name: 'guard' }) : null
    const get = (fence: Fence | undefined): Promise<string | null> =>
      guard === null ? client.get(key) : guard.get(needFence(fence), key)
    const set = (fence: Fence | undefined, text: string): Promise<unknown> =>
      guard === null ? client.set(key, text) : guard.set(needFence(fence), key, text)
    return {
      // The check is a step of the server.
      guard: guard && { name: guard.name, isTimed: false },
      read: async (fence) => parse(await orUnknown(get(fence))),
      async write(entries, before, fence) {
        await orUnknown(set(fence, JSON.stringify({ entries, version: before.version + 1 })))
        return {}
      },
      close: async () => client.disconnect(),
    }
  },
}

function parse(text: string | null): Document {
  return text === null ? { entries: [], version: 0 } : JSON.parse(text)
}

async function orUnknown<T>(step: Promise<T>): Promise<T> {
  try {
    return await step
  } catch (error) {
    throw isHoldfastError(error, 'BACKEND_UNAVAILABLE') ? new UnknownOutcomeError(error) : error
  }
}
