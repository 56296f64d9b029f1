/** Requests that are alone in their call: each check of the short scripts, and that everything else goes on to the whole script. */
import assert from 'node:assert/strict'
import { connectRedis, type RespClient, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { afterAll, beforeAll, beforeEach, describe, test } from 'vitest'
import { Rig } from '../../../../test/redis/rig.ts'
import type { GrantedClaim } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'

const LOCK = 'holdfast:default:{x}'
const release = { keepForMs: 0 }
const ttlMs = 60_000

describe.runIf(wanted('redis')).each(['clock-backed', undefined] as const)(
  'short scripts, fencing %s',
  (fencing) => {
    let server: Server
    let wire: RespClient
    beforeAll(async () => {
      server = await startRedis()
      wire = await connectRedis(server)
    })
    afterAll(async () => {
      wire?.close()
      await server?.stop()
    })
    beforeEach(() => wire.call('FLUSHALL'))

    async function sessionOn(rig: Rig) {
      const backend = await rig.backend(server.url, { backend: fencing === undefined ? {} : { fencing } })
      const session = await backend.openSession({ id: newSessionId(), ttlMs, holder: 'ada' }, call())
      const take = async (asked = request('x')): Promise<GrantedClaim> => {
        const result = await session.tryAcquire(asked, call())
        assert(result.kind === 'granted', result.kind)
        return { ...asked, grantId: result.grant.grantId }
      }
      return { session, take }
    }

    test('G7 T46 a release, or a renewal, of another attempt changes nothing', async () => {
      await using rig = new Rig()
      const { session, take } = await sessionOn(rig)
      const over = await take()
      await session.release(over, release, call())
      const held = await take()
      const value = await wire.call('GET', LOCK)
      assert.equal(await session.release(over, release, call()), 'not-held')
      await wire.call('PEXPIRE', LOCK, ttlMs / 2)
      const renewed = await session.keepAlive({ held: [over], waiting: [] }, call())
      assert(renewed.kind === 'alive' && renewed.lost[0]?.attempt === over.attempt)
      assert.equal(await wire.call('GET', LOCK), value)
      assert(Number(await wire.call('PTTL', LOCK)) <= ttlMs / 2)
      assert.equal(await session.release(held, release, call()), 'released')
    })

    test('T84 a late copy of an acquire gets another grant, and the first one releases and renews nothing', async () => {
      await using rig = new Rig()
      const { session, take } = await sessionOn(rig)
      const asked = request('x')
      const first = await take(asked)
      await wire.call('DEL', LOCK)
      const second = await take(asked)
      assert.notEqual(second.grantId, first.grantId)
      assert.equal(await session.release(first, release, call()), 'not-held')
      const renewed = await session.keepAlive({ held: [first], waiting: [] }, call())
      assert(renewed.kind === 'alive' && renewed.lost[0]?.attempt === first.attempt)
      assert.equal(await session.release(second, release, call()), 'released')
    })

    test('G2 a lease that was granted behind the clock is renewed and released, as is one with a note', async () => {
      await using rig = new Rig()
      const { session, take } = await sessionOn(rig)
      const ahead = String((Date.now() + 500) * 1_000)
      await wire.call('SET', 'holdfast:token', ahead)
      for (const asked of [request('x'), { ...request('x'), note: 'a | note' }]) {
        const held = await take(asked)
        await wire.call('PEXPIRE', LOCK, ttlMs / 2)
        const renewed = await session.keepAlive({ held: [held], waiting: [] }, call())
        assert(renewed.kind === 'alive' && renewed.lost.length === 0)
        assert(Number(await wire.call('PTTL', LOCK)) > ttlMs / 2)
        assert.equal(await session.release(held, release, call()), 'released')
        if (fencing !== undefined) assert(BigInt(held.grantId) > BigInt(ahead))
      }
      assert.equal(await wire.call('EXISTS', LOCK), 0)
    })

    test('T108 a pair alone runs the commands of the lock, and with tokens one more', async () => {
      await using rig = new Rig()
      const { session, take } = await sessionOn(rig)
      const pair = async () => session.release(await take(), release, call())
      await pair()
      await wire.call('CONFIG', 'RESETSTAT')
      await pair()
      const report = String(await wire.call('INFO', 'commandstats'))
      const counts = [...report.matchAll(/^cmdstat_(?!config|info)([^:|]+)[^:]*:calls=(\d+)/gm)]
      const set = fencing === undefined ? 1 : 2
      assert.deepEqual(Object.fromEntries(counts.map(([, name, calls]) => [name, Number(calls)])), {
        ...{ evalsha: 2, exists: 2, time: 1, set, get: 1, del: 1 },
      })
    })
  },
)
