/** A primary behind Sentinel: found, used, and followed when another takes over. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { startWatchedRedis, type WatchedRedis, wanted } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { createSentinel } from 'redis'
import { describe, test } from 'vitest'
import { until } from '../../../../test/redis/rig.ts'
import { startProgram } from '../../../../test/start-program.ts'
import type { Locker } from '../../../base/types.ts'
import { createLocker } from '../../../locker/locker.ts'
import { redis } from './index.ts'

function open({ sentinel, group }: WatchedRedis): Redis {
  const client = new Redis({ sentinels: [{ host: sentinel.host, port: sentinel.port }], name: group })
  client.on('error', () => {})
  return client
}

describe.runIf(wanted('redis'))('redis behind Sentinel', () => {
  test('createSentinel of node-redis is refused, with what to use instead', () => {
    const client = createSentinel({ name: 'orders', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] })
    assert.throws(() => redis({ client: client as never }), /createSentinel.*Use ioredis/)
  })

  test('a locker that is not closed does not keep the process alive', async () => {
    await using watched = await startWatchedRedis()
    const { host, port } = watched.sentinel
    const program = join(import.meta.dirname, '../../../../test/redis/forgotten-sentinel.ts')
    const { code, lines, errors } = await startProgram(program, host, port, watched.group).ended
    assert.deepEqual({ code, lines, errors }, { code: 0, lines: ['done'], errors: '' })
  })

  test('G2 G10 leases, hand-over, and tokens that increase over a fail-over', async () => {
    await using watched = await startWatchedRedis()
    const clients = [open(watched), open(watched)] as const
    const [one, other] = clients.map((client) =>
      createLocker(redis({ client, fencing: 'clock-backed' }), { ttlMs: 3_000, callTimeoutMs: 3_000 }),
    ) as [Locker<'fenced'>, Locker<'fenced'>]
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
    for (const client of clients) client.disconnect()
  })
})
