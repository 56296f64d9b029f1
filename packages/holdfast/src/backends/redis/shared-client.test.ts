/** A locker on a client that the user blocks with a command of their own (T85). */
import assert from 'node:assert/strict'
import { type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { libraries } from '../../../test/redis/clients.ts'
import { createLocker } from '../../core/locker.ts'
import { redis } from './index.ts'

interface Blockable {
  blpop?(key: string, seconds: number): Promise<unknown>
  blPop?(key: string, seconds: number): Promise<unknown>
}

describe.runIf(wanted('redis'))('redis on a client that a blocking command holds up', () => {
  let server: Server & { readonly url: string }
  let admin: Redis
  beforeAll(async () => {
    server = await startRedis()
    admin = new Redis(server.url)
  }, 60_000)
  afterAll(async () => {
    admin.disconnect()
    await server.stop()
  })

  test.each(libraries)(
    'T85 with $name, renewals go on while the client is blocked, and the error of other calls names the reason',
    async (library) => {
      const { client, close } = await library.open(server.url, library.prefixes ? { keyPrefix: 'p:' } : {})
      const locker = createLocker(redis({ client, namespace: library.name.replace(' ', '-') }), {
        callTimeoutMs: 2_000,
      })
      const lease = await locker.acquire('held', { ttlMs: 6_000 })
      const blockable = client as unknown as Blockable
      const list = `list of ${library.name}`
      const blocked = blockable.blpop?.(list, 0) ?? blockable.blPop?.(list, 0)
      await lease.renew()
      await lease.renew()
      assert.equal(lease.state, 'held')
      await assert.rejects(
        locker.acquire('another', { waitMs: 100 }),
        (error: Error & { code?: string }) =>
          error.code === 'BACKEND_UNAVAILABLE' && /BLPOP/.test(error.message),
      )
      assert.equal(lease.state, 'held')
      await admin.lpush(library.prefixes ? `p:${list}` : list, 'x')
      await blocked
      await lease.renew()
      assert.equal(await lease.release(), 'released')
      await locker.close()
      close()
    },
    60_000,
  )
})
