/** Connections that are reset while calls are in flight, with clients that send again, reject, or forget. */
import assert from 'node:assert/strict'
import { type FaultyProxy, startProxy } from 'holdfast-lab/faults'
import { redisCall, type Server, startRedis, wanted } from 'holdfast-lab/servers'
import type { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, onTestFinished, test } from 'vitest'
import { forgetfulLibraries, libraries } from '../../../../test/redis/clients.ts'
import { Rig, until } from '../../../../test/redis/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { operatorCall } from '../../../testing/conformance/operator.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { newSessionId } from '../../../testing/conformance/stage.ts'
import { openRedis } from './assemble.ts'

const isUnknown = (error: unknown) =>
  isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === 'unknown'

describe.runIf(wanted('redis'))('redis: a connection that is reset', () => {
  let server: Server
  let proxy: FaultyProxy
  let rig: Rig
  beforeAll(async () => {
    server = await startRedis()
  })
  beforeEach(async () => {
    proxy = await startProxy(server)
    rig = new Rig()
  })
  afterEach(async () => {
    await rig[Symbol.asyncDispose]()
    await proxy.close()
  })
  afterAll(() => server?.stop())

  const url = () => `redis://${proxy.host}:${proxy.port}`
  const opened = (ttlMs = 60_000) => ({ id: newSessionId(), ttlMs, holder: 'ada' })

  test.each([...forgetfulLibraries, ...libraries])(
    'T76 calls in flight at a reset do not stop the calls after it ($name)',
    async (library) => {
      const backend = await rig.backend(url(), { library })
      const session = await backend.openSession(opened(), call())
      const namespace = library.name
      for (let round = 0; round < 3; round++) {
        await session.keepAlive({ held: [], waiting: [] }, call())
        proxy.drop('down')
        const asked = [0, 1, 2].map((index) => request(`${namespace} ${round} ${index}`))
        const running = asked.map((each) => session.tryAcquire(each, call()))
        const settled = Promise.allSettled(running)
        await until('the server has answered', () => proxy.swallowedBytes('down') > 0)
        proxy.heal()
        // A client that sends again gets the answer: the attempt is the same, so nothing happens twice.
        for (const result of await settled)
          assert(result.status === 'fulfilled' ? result.value.kind === 'granted' : isUnknown(result.reason))
        for (const each of asked) await session.abandon(each, call())
      }
      const after = await session.tryAcquire(request(`${namespace} after`), call())
      assert.equal(after.kind, 'granted')
    },
  )

  test.each(forgetfulLibraries)(
    'T76 a keep-alive in flight at a reset is told as unknown, and the lease survives ($name)',
    async (library) => {
      const locker = await rig.locker(url(), { library, locker: { ttlMs: 30_000 } })
      const lease = await locker.acquire(`kept ${library.name}`)
      proxy.drop('down')
      const renewing = lease.renew()
      await until('the server has answered', () => proxy.swallowedBytes('down') > 0)
      proxy.heal()
      await assert.rejects(renewing, isUnknown)
      await lease.renew()
      assert.equal(lease.state, 'held')
      assert.equal(await lease.release(), 'released')
    },
  )

  test.each(forgetfulLibraries)(
    'T76 a call that waited for a connection settles when that connection is lost ($name)',
    async (library) => {
      const { client, close } = await library.open(url())
      onTestFinished(close)
      const backend = openRedis({ client })
      const session = await backend.openSession(opened(), call())
      const events = client as Redis
      const closed = () => new Promise((resolve) => events.once('close', resolve))
      proxy.refuse()
      proxy.reset()
      await closed()
      const queued = session.tryAcquire(request(`queued ${library.name}`), call())
      const refused = assert.rejects(queued, isUnknown)
      // The client has tried to connect once more in vain: the call is in its queue by now.
      await closed()
      // Commands that it has queued leave as soon as it is ready.
      events.once('ready', () => proxy.drop('down'))
      proxy.heal()
      await until('the server has answered', () => proxy.swallowedBytes('down') > 0)
      proxy.heal()
      await refused
      assert.equal((await session.tryAcquire(request(`${library.name} next`), call())).kind, 'granted')
      await backend[Symbol.asyncDispose]()
    },
  )

  test('T76 nothing is kept of calls that the client has forgotten', async () => {
    const [library] = forgetfulLibraries
    assert(library !== undefined)
    const backend = await rig.backend(url(), { library })
    const session = await backend.openSession(opened(), call())
    const forgotten = async (name: string) => {
      await session.keepAlive({ held: [], waiting: [] }, call())
      proxy.drop('down')
      const { signal } = new AbortController()
      const running = assert.rejects(session.tryAcquire(request(name), callWith(signal)), isUnknown)
      await until('the server has answered', () => proxy.swallowedBytes('down') > 0)
      proxy.heal()
      await running
      return new WeakRef(signal)
    }
    const kept: WeakRef<AbortSignal>[] = []
    for (let round = 0; round < 5; round++) kept.push(await forgotten(`forgotten ${round}`))
    await session.tryAcquire(request('forgotten last'), call())
    await until('they are collected', () => {
      globalThis.gc?.()
      return kept.every((each) => each.deref() === undefined)
    })
  })

  test.each([...libraries, ...forgetfulLibraries])(
    'T13 G11 a release whose answer was lost is unknown, not “not-held”, also if the client sends it again ($name)',
    async (library) => {
      const locker = await rig.locker(url(), { library })
      const name = `release ${library.name}`
      const shared = { mode: 'shared' } as const
      for (const options of [{}, shared]) {
        const [lease, other] = [await locker.acquire(name, options), await locker.acquire('other')]
        proxy.drop('down')
        const releasing = lease.release()
        await until('the server has answered', () => proxy.swallowedBytes('down') > 0)
        proxy.heal()
        assert.equal(await releasing, 'unknown')
        assert.equal(await other.release(), 'released', 'the next call is certain again')
      }
    },
  )

  test.each([...libraries, ...forgetfulLibraries])(
    'T78 G7 a force release whose answer was lost ends no successor when it is sent again, and is told as unknown ($name)',
    async (library) => {
      const name = `forced ${library.name}`
      const [operator, holders] = [await rig.backend(url(), { library }), await rig.backend(server.url)]
      const session = await holders.openSession(opened(), call())
      const old = await session.tryAcquire(request(name), call())
      assert(old.kind === 'granted')
      const ids = (await operator.inspect(name, call()))?.holders.map(({ id }) => id) ?? []
      // So that the server knows the script: the first answer would otherwise be that it does not.
      assert.equal(await operator.forceRelease('never held', ids, 'stuck', operatorCall()), 0)
      proxy.drop('down')
      const forcing = operator.forceRelease(name, ids, 'stuck', operatorCall())
      const refused = assert.rejects(forcing, isUnknown)
      await until('the server has answered', () => proxy.swallowedBytes('down') > 0)
      const next = await session.tryAcquire(request(name), call())
      assert(next.kind === 'granted', 'the first copy has ended the old holder')
      proxy.heal()
      await refused
      const kept = await session.keepAlive({ held: [next.grant], waiting: [] }, call())
      assert(kept.kind === 'alive' && kept.lost.length === 0)
    },
  )

  test('G11 a release of what is not held says so, when the connection was not lost in between', async () => {
    const locker = await rig.locker(url())
    const lease = await locker.acquire('gone')
    proxy.reset()
    await lease.renew()
    await redisCall(server, 'DEL', 'holdfast:default:{gone}')
    assert.equal(await lease.release(), 'not-held')
  })
})
