/** A locker on a client that the user blocks with a command of their own (T85, shared clients). */
import assert from 'node:assert/strict'
import { startProxy } from 'holdfast-lab/faults'
import { type Server, startRedis, wanted } from 'holdfast-lab/servers'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { libraries, libraryNamed } from '../../../../test/redis/clients.ts'
import { Rig, until } from '../../../../test/redis/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { openRedis } from './assemble.ts'
import { redis } from './index.ts'

interface Blockable {
  select(database: number): Promise<unknown>
  blpop?(key: string, seconds: number): Promise<unknown>
  blPop?(key: string, seconds: number): Promise<unknown>
}

describe.runIf(wanted('redis'))('redis on a client that a blocking command holds up', () => {
  let server: Server & { readonly url: string }
  let admin: Redis
  beforeAll(async () => {
    server = await startRedis()
    admin = new Redis(server.url)
  })
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
  )

  test.each(libraries)(
    'T85 with $name, a session in a database that was selected by hand is refused, or outlives a client that is blocked',
    async (library) => {
      const { client, close } = await library.open(server.url)
      const blockable = client as unknown as Blockable
      await blockable.select(3)
      const backend = redis({ client, namespace: `selected-${library.name.replace(' ', '-')}` })
      const locker = createLocker(backend)
      if (library.name.startsWith('ioredis')) {
        // It tells which database was given in its options, so another one is found out, and refused.
        await assert.rejects(locker.acquire('held'), (error) => isHoldfastError(error, 'UNSUPPORTED'))
        await locker.close()
        close()
        return
      }
      const lease = await locker.acquire('held', { ttlMs: 12_000 })
      const list = `selected ${library.name}`
      const blocked = blockable.blpop?.(list, 0) ?? blockable.blPop?.(list, 0)
      const renewing = lease.renew()
      await until('our own connection is answered', () => backend.whyUnanswered?.() !== undefined)
      // node-redis does not tell which database was selected, so the client must answer itself.
      assert.equal(lease.state, 'held')
      await admin.select(3)
      await admin.lpush(list, 'x')
      await blocked
      await renewing
      assert.equal(lease.state, 'held')
      assert.equal(await lease.release(), 'released')
      await locker.close()
      await admin.select(0)
      close()
    },
  )

  test('T85 what is gone over our own connection is left to the client, and the other leases go on', async () => {
    const library = libraryNamed('ioredis 6')
    await using rig = new Rig()
    const operator = await rig.locker(server.url, { backend: { namespace: 'mixed' } })
    const { client, close } = await library.open(server.url)
    const locker = createLocker(redis({ client, namespace: 'mixed' }))
    const [kept, gone] = await Promise.all(
      ['kept', 'gone'].map((name) => locker.acquire(name, { ttlMs: 6_000 })),
    )
    assert(kept !== undefined && gone !== undefined)
    const blocked = (client as unknown as Blockable).blpop?.('mixed', 0)
    await operator.forceRelease('gone', { all: true, reason: 'a test' })
    await until('the other is given up', () => gone.state === 'lost')
    assert.match(String(gone.signal.reason), /did not confirm a renewal in time/)
    await kept.renew()
    assert.equal(kept.state, 'held')
    await admin.lpush('mixed', 'x')
    await blocked
    assert.equal(await kept.release(), 'released')
    await locker.close()
    close()
  })

  test('T85 a renewal over our own connection that comes late revives nothing', async () => {
    let connections = 0
    await using proxy = await startProxy(server, { label: () => String(++connections) })
    const clock = createFakeClock()
    const { client, close } = await libraryNamed('ioredis 6').open(`redis://${proxy.host}:${proxy.port}`)
    const backend = openRedis({ client, clock, namespace: 'late' })
    const id = newSessionId()
    const opened = await backend.openSession({ id, ttlMs: 60_000, holder: 'ada' }, call())
    const session = namingGrants(opened)
    const claims = [request('released'), request('abandoned'), request('of the session')] as const
    for (const claim of claims) assert.equal((await session.tryAcquire(claim, call())).kind, 'granted')
    const block = () => (client as unknown as Blockable).blpop?.('late', 0)
    const unblock = () => admin.lpush('late', 'x')
    const keepAlive = () => session.keepAlive({ held: claims, waiting: [] }, call())
    const evaluations = async () =>
      [...(await admin.info('commandstats')).matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm)]
        .map(([, calls]) => Number(calls))
        .reduce((sum, calls) => sum + calls, 0)
    const stored = () => admin.keys('holdfast:late:*')

    block()
    const prompt = keepAlive()
    await clock.advance(1_000)
    assert.equal((await prompt).kind, 'alive')
    // The client's connection came first, then the one for messages. What goes over the third from here on waits there.
    proxy.hold('up', ({ label }) => label === '3')
    const late = keepAlive()
    await clock.advance(1_000)
    // It is asked at the end of the turn.
    await new Promise((resolve) => setImmediate(resolve))
    const ending = Promise.all([
      session.release(claims[0], { keepForMs: 0 }, call()),
      session.abandon(claims[1], call()),
    ])
    await unblock()
    assert.equal((await late).kind, 'alive')
    await ending
    await session.close(call())
    assert.deepEqual(
      (await stored()).filter((key) => !key.includes(':x:')),
      [],
    )
    // Everything else has been answered by now.
    const before = await evaluations()
    proxy.heal()
    await until('both scripts have run', async () => (await evaluations()) >= before + 2)
    assert.deepEqual(
      (await stored()).filter((key) => !key.includes(':x:')),
      [],
    )
    await backend[Symbol.asyncDispose]()
    close()
  })
})
