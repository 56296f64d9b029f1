/** A primary behind Sentinel: found, used, and followed when another takes over. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { startWatchedRedis, type WatchedRedis, wanted } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { createSentinel } from 'redis'
import { describe, test } from 'vitest'
import { until } from '../../../test/redis/rig.ts'
import { startProgram } from '../../../test/start-program.ts'
import type { RedisClient } from '../../clients/redis/index.ts'
import { createLocker } from '../../locker/locker.ts'
import { redis } from './index.ts'

interface Opened {
  readonly client: RedisClient
  close(): unknown
}

const openers: Record<string, (watched: WatchedRedis) => Promise<Opened>> = {
  async ioredis({ sentinel, group }) {
    const client = new Redis({ sentinels: [{ host: sentinel.host, port: sentinel.port }], name: group })
    client.on('error', () => {})
    return { client, close: () => client.disconnect() }
  },
  async 'node-redis'({ sentinel, group }) {
    const client = createSentinel({
      name: group,
      sentinelRootNodes: [{ host: sentinel.host, port: sentinel.port }],
    })
    client.on('error', () => {})
    await client.connect()
    return { client, close: () => client.destroy() }
  },
}

/** A command of the user's own. */
function ownGet(client: RedisClient): Promise<unknown> {
  return (client as unknown as Pick<Redis, 'get'>).get('theirs')
}

describe.runIf(wanted('redis'))('redis behind Sentinel', () => {
  test('T43 G12 node-redis does not tell which group it is for: tokens need an issuer that does', () => {
    const client = createSentinel({ name: 'orders', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] })
    assert.throws(() => redis({ client, fencing: 'clock-backed' }), /issuer.*createSentinel/)
    assert.equal(redis({ client, fencing: 'clock-backed', issuer: 'orders' }).info.issuer, 'orders')
  })

  test.each(Object.keys(openers))(
    'T52 %s: with waitReplicas the connections of the user’s client stay the user’s',
    async (library) => {
      await using watched = await startWatchedRedis()
      const opened = await openers[library]?.(watched)
      assert(opened !== undefined)
      const waitReplicas = { count: 1, timeoutMs: 5_000 }
      const locker = createLocker(redis({ client: opened.client, waitReplicas }))
      const leases = [await locker.acquire('x'), await locker.acquire('y')]
      assert.equal(await ownGet(opened.client), null)
      for (const lease of leases) assert.equal(await lease.release(), 'released')
      await locker.close({ graceMs: 0 })
      assert.equal(await ownGet(opened.client), null)
      await opened.close()
    },
  )

  test.each(['ioredis', 'node-redis'])(
    '%s: a locker that is not closed does not keep the process alive',
    async (library) => {
      await using watched = await startWatchedRedis()
      const { host, port } = watched.sentinel
      const program = join(import.meta.dirname, '../../../test/redis/forgotten-sentinel.ts')
      const { code, lines, errors } = await startProgram(program, library, host, port, watched.group).ended
      assert.deepEqual({ code, lines, errors }, { code: 0, lines: ['done'], errors: '' })
    },
  )

  test.each(Object.keys(openers))(
    'G2 G10 %s: leases, hand-over, and tokens that increase over a fail-over',
    async (library) => {
      await using watched = await startWatchedRedis()
      const opened = await Promise.all([openers[library]?.(watched), openers[library]?.(watched)])
      const backend = (each: Opened | undefined) => {
        assert(each !== undefined)
        return createLocker(redis({ client: each.client, fencing: 'clock-backed', issuer: 'shop' }), {
          ttlMs: 3_000,
          callTimeoutMs: 3_000,
        })
      }
      const [one, other] = [backend(opened[0]), backend(opened[1])]
      const lease = await one.acquire('x')
      assert.equal(await other.tryAcquire('x'), null)
      const waiting = other.acquire('x', { waitMs: 30_000 })
      await until('it waits', async () => ((await one.inspect('x'))?.waiters.length ?? 0) === 1)
      await lease.release()
      const before = await waiting
      await before.release()

      await watched.pair.primary.kill()
      const tokens: bigint[] = []
      // Each of the two clients finds the new primary in its own time.
      for (const locker of [one, other])
        await until('the new primary grants', async () => {
          const next = await locker.tryAcquire('after').catch(() => null)
          if (next !== null) {
            tokens.push(next.fence.token)
            await next.release()
          }
          return next !== null
        })
      assert((tokens[0] ?? 0n) > before.fence.token)
      // Messages go on as well: a waiter is told.
      const held = await one.acquire('later')
      const next = other.acquire('later', { waitMs: 30_000 })
      await until('it waits there', async () => ((await one.inspect('later'))?.waiters.length ?? 0) === 1)
      await held.release()
      assert.equal((await next).state, 'held')
      for (const locker of [one, other]) await locker.close({ graceMs: 0 })
      for (const each of opened) await each?.close()
    },
  )
})
