/** Tokens on Redis: they must increase through everything that takes the data away, as long as the clock does not go back. */
import assert from 'node:assert/strict'
import { createClock, startProxy } from 'holdfast-lab/faults'
import { redisCall, startRedis, wanted } from 'holdfast-lab/servers'
import { describe, test } from 'vitest'
import { Rig, until } from '../../../test/redis/rig.ts'
import { isHoldfastError } from '../../core/errors.ts'
import { onEvent } from '../../core/events.ts'
import { systemRandom } from '../../core/ids.ts'
import type { Locker } from '../../core/types.ts'
import { memoryGuard } from '../../guards/memory.ts'
import { LOCK_CAPACITY } from '../../spi.ts'

const held: unknown[] = []

async function tokenOf(locker: Locker<'fenced'>, name = 'x'): Promise<bigint> {
  const lease = await locker.acquire(name)
  held.push(lease)
  const { token } = lease.fence
  await lease.release()
  return token
}

describe.runIf(wanted('redis'))('tokens on redis', () => {
  test('T38 G2 tokens increase over FLUSHALL, and over a restart without persistence', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const before = await tokenOf(await rig.fenced(server.url))
    await redisCall(server, 'FLUSHALL')
    const flushed = await tokenOf(await rig.fenced(server.url))
    await server.kill()
    await server.restart()
    const restarted = await tokenOf(await rig.fenced(server.url))
    assert(before < flushed && flushed < restarted)
  })

  test('T38 G2 tokens increase over the promotion of a replica that has not caught up', async () => {
    await using primary = await startRedis()
    await using link = await startProxy(primary)
    await using replica = await startRedis({ replicaOf: link })
    await using rig = new Rig()
    const locker = await rig.fenced(primary.url)
    const replicated = await tokenOf(locker)
    await until(
      'the replica has it',
      async () => (await redisCall(replica, 'EXISTS', 'holdfast:token')) === 1,
    )
    link.blackhole()
    const unseen = await tokenOf(locker)
    await primary.kill()
    await redisCall(replica, 'REPLICAOF', 'NO', 'ONE')
    const promoted = await tokenOf(await rig.fenced(replica.url))
    assert(replicated < unseen && unseen < promoted)
  })

  test('G2 a call that fails in the middle leaves no token behind that could be drawn again', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const backend = await rig.backend(server.url, { backend: { fencing: 'clock-backed' } })
    const call = () => ({ signal: new AbortController().signal })
    const session = await backend.openSession({ id: 's'.repeat(32), ttlMs: 60_000, holder: 'h' }, call())
    const exclusive = { mode: 'exclusive', weight: LOCK_CAPACITY, capacity: LOCK_CAPACITY } as const
    const acquire = (index: number, note: string) => {
      const attempt = `${systemRandom.id()}.${systemRandom.id()}`
      return session.tryAcquire({ name: `n${index}`, attempt, lockDelayMs: 0, note, ...exclusive }, call())
    }
    // A name whose place for the rare is not a hash makes its request fail after those before it were granted.
    await redisCall(server, 'SET', 'holdfast:default:{n20}:s', 'not a hash')
    const [failed] = (
      await Promise.allSettled(Array.from({ length: 21 }, (_, index) => acquire(index, 'x')))
    ).slice(-1)
    assert.equal(failed?.status, 'rejected')
    const found = await Promise.all(
      Array.from({ length: 20 }, (_, index) => backend.inspect(`n${index}`, call())),
    )
    const tokens = found.flatMap((state) => state?.holders ?? []).map(({ token }) => token ?? 0n)
    assert.equal(tokens.length, 20)
    const mark = BigInt(String(await redisCall(server, 'GET', 'holdfast:token')))
    for (const token of tokens) assert(token <= mark, 'the mark is not behind what was granted')
  })

  test('G2 tokens of requests that travel together increase, and so do those of the next call', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const locker = await rig.fenced(server.url)
    let last = 0n
    for (let round = 0; round < 5; round++) {
      const leases = await Promise.all(Array.from({ length: 100 }, (_, index) => locker.acquire(`n${index}`)))
      const tokens = leases.map(({ fence }) => fence.token)
      assert.equal(new Set(tokens).size, tokens.length)
      for (const token of tokens) assert(token > last)
      for (const token of tokens) if (token > last) last = token
      await Promise.all(leases.map((lease) => lease.release()))
    }
  })

  test('T38 no key per name is left behind', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const locker = await rig.fenced(server.url)
    for (let index = 0; index < 50; index++) await tokenOf(locker, `item ${index}`)
    await locker.close()
    assert.deepEqual(await redisCall(server, 'KEYS', '*'), ['holdfast:token'])
  })

  test('T69 T42 tokens of the same microsecond are whole numbers, all different', async () => {
    await using server = await startRedis({ clock: frozen() })
    await using rig = new Rig()
    const locker = await rig.fenced(server.url)
    const tokens: bigint[] = []
    for (let index = 0; index < 20; index++) tokens.push(await tokenOf(locker))
    for (const [index, token] of tokens.entries()) assert.equal(token, (tokens[0] ?? 0n) + BigInt(index))
    const stored = String(await redisCall(server, 'GET', 'holdfast:token'))
    assert.match(stored, /^\d{16}$/)
  })

  test('T37 the token is drawn with the grant: of two who race, who got in later has the higher one', async () => {
    await using server = await startRedis()
    await using rig = new Rig()
    const lockers = [await rig.fenced(server.url), await rig.fenced(server.url)]
    let last = 0n
    const compete = async (locker: Locker<'fenced'>) => {
      for (let turns = 0; turns < 50; turns++)
        await locker.withLease('x', async (lease) => {
          // Exclusion makes the order in which holders get here the order of their grants.
          assert(lease.fence.token > last)
          last = lease.fence.token
        })
    }
    await Promise.all(lockers.map(compete))
  })

  test('T9 G5 when the server’s clock is stepped there may be two believers, and the guard refuses the older', async () => {
    const clock = createClock()
    await using server = await startRedis({ clock })
    await using rig = new Rig()
    const guard = memoryGuard<string>()
    const first = await (await rig.fenced(server.url)).acquire('x', { ttlMs: 60_000 })
    await guard.run(first, (tx) => tx.set('x', 'first'))
    clock.step(3_600_000)
    const second = await (await rig.fenced(server.url)).acquire('x', { ttlMs: 60_000 })
    assert.equal(first.state, 'held', 'the first believes: its own clocks have not moved')
    assert(second.fence.token > first.fence.token)
    await guard.run(second, (tx) => tx.set('x', 'second'))
    const stale = guard.run(first, (tx) => tx.set('x', 'stale'))
    await assert.rejects(stale, (error) => isHoldfastError(error, 'FENCE_STALE'))
    assert.equal(guard.resource.get('x'), 'second')
    held.push(first, second)
  })

  test('T9 G2 when the server’s clock goes back, tokens go on increasing, and it is told', async () => {
    const clock = createClock()
    await using server = await startRedis({ clock })
    await using rig = new Rig()
    const warnings: string[] = []
    const stop = onEvent('warning', ({ warning }) => warnings.push(warning))
    const locker = await rig.fenced(server.url)
    const before = await tokenOf(locker)
    clock.step(-3_600_000)
    const after = await tokenOf(locker)
    stop()
    assert(after > before)
    assert(warnings.some((warning) => /clock is \d+ ms behind the last token/.test(warning)))
  })
})

function frozen() {
  const clock = createClock()
  clock.freeze()
  return clock
}
