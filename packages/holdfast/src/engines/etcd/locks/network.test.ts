/** What is lost on the way between a client and the members. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FaultyProxy } from 'holdfast-lab/faults'
import { waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { limitedCall, openSession, Rig } from '../../../../test/etcd/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { systemClock } from '../../../base/clock.ts'
import { neverCancelled } from '../../../kit/backend-kit.ts'
import { createLocker } from '../../../locker/locker.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { EtcdClient, methods } from '../client/index.ts'
import { Watches } from '../client/watches.ts'

describe.runIf(wanted('etcd'))('the network', () => {
  let rig: Rig
  let proxies: FaultyProxy[]
  let hosts: string[]
  beforeAll(async () => {
    rig = await Rig.start({ members: 3 })
    ;({ proxies, hosts } = await rig.proxies())
  })
  afterAll(async () => {
    for (const proxy of proxies) await proxy.close()
    await rig[Symbol.asyncDispose]()
  })
  afterEach(async () => {
    for (const proxy of proxies) proxy.heal()
    await rig.clear()
  })
  const first = () => proxies[0] as FaultyProxy
  /** Made again until the connection that the fault has spoilt is left. */
  const answered = <T>(ask: () => Promise<T>): Promise<T> =>
    waitFor('an answer', async () => ({ answer: await ask() })).then(({ answer }) => answer)

  test('T15 T73 G6 an acquire whose reply is lost is unknown, and leaves nothing once abandoned', async () => {
    const backend = await rig.backend({ hosts })
    const session = await openSession(backend)
    first().drop('down')
    const asked = request('x')
    const acquiring = session.tryAcquire(asked, limitedCall(400))
    await expect(acquiring).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    const observer = await rig.backend()
    expect((await observer.inspect('x', call()))?.holders).toHaveLength(1)
    first().heal()
    await answered(() => session.abandon(asked, call()))
    expect(await observer.inspect('x', call())).toBeNull()
    // A copy of the request that was on its way all the time.
    await expect(session.tryAcquire(asked, call())).rejects.toMatchObject({ outcome: 'not-applied' })
    expect(await observer.inspect('x', call())).toBeNull()
  })

  test('T13 a release whose reply is lost says unknown, and asked again says the truth', async () => {
    const session = await openSession(await rig.backend({ hosts }))
    const result = await session.tryAcquire(request('x'), call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    first().drop('down')
    const releasing = session.release(result.grant, { keepForMs: 0 }, limitedCall(400))
    await expect(releasing).rejects.toMatchObject({ outcome: 'unknown' })
    first().heal()
    expect(await answered(() => session.release(result.grant, { keepForMs: 0 }, call()))).toBe('not-held')
  })

  test('G1 T98 a join whose answer is lost is asked again at another member, and finds its own grant', async () => {
    const session = await openSession(await rig.backend({ hosts }))
    first().drop('down')
    const result = await session.tryAcquire(request('x'), call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    const { holders } = (await (await rig.backend()).inspect('x', call())) ?? { holders: [] }
    expect(holders.map(({ token }) => token)).toEqual([result.grant.token])
    expect(await session.release(result.grant, { keepForMs: 0 }, call())).toBe('released')
  })

  test('T98 a process that was blocked reads its answers before it asks again, or leaves the member', async () => {
    const block = async (ms: number) => {
      // What was asked for in this turn is sent.
      await new Promise((resolve) => setImmediate(resolve))
      const startMs = performance.now()
      while (performance.now() - startMs < ms);
    }
    const client = new EtcdClient('etcd', { hosts: [rig.hosts[0] as string] }, systemClock)
    const first = client.ask(methods.range, { key: 'a' }, neverCancelled)
    await block(1_200)
    expect((await first).count).toBe(0)
    const watches = new Watches(client, neverCancelled, systemClock)
    let [lost, again, created] = [false, 0, false]
    watches.add({ key: 'a' }, { onResponse: () => (created = true), onLost: () => (lost = true) })
    await waitFor('it watches', async () => created || null)
    const [ID, given] = [4_711, new Cancellation()]
    const onAgain = () => void again++
    const asked = client.ask(methods.leaseGrant, { ID, TTL: 60 }, neverCancelled, onAgain)
    const cancelled = client.ask(methods.range, { key: 'a' }, given)
    const limit = setTimeout(() => given.cancel(new Error('given up')), 1_000)
    await block(1_700)
    await Promise.allSettled([asked, cancelled])
    clearTimeout(limit)
    await new Promise((resolve) => setImmediate(resolve))
    expect([lost, again]).toEqual([false, 0])
    await client.ask(methods.leaseRevoke, { ID }, neverCancelled)
    watches.close()
    client.close()
  })

  test('G11 T13 a release whose answer is lost is unknown, because its copy finds nothing to release', async () => {
    const session = await openSession(await rig.backend({ hosts }))
    const result = await session.tryAcquire(request('x'), call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    first().drop('down')
    const releasing = session.release(result.grant, { keepForMs: 0 }, call())
    await expect(releasing).rejects.toMatchObject({ outcome: 'unknown' })
    expect(await (await rig.backend()).inspect('x', call())).toBeNull()
  })

  test('G10 cut off from one member, a client goes on with the next', async () => {
    const locker = createLocker(await rig.backend({ hosts }), { ttlMs: 6_000 })
    const held = await locker.acquire('x')
    first().blackhole()
    await waitFor('it is renewed over another member', async () => held.remainingMs > 5_000 || null)
    await sleep(2_500)
    await waitFor('it is renewed once more', async () => held.remainingMs > 5_000 || null)
    expect(await held.release()).toBe('released')
    await locker.close()
  })

  test('T16 T33 G3 cut off from all members, a lease is lost at its deadline', async () => {
    const locker = createLocker(await rig.backend({ hosts }), { ttlMs: 2_000, callTimeoutMs: 500 })
    const held = await locker.acquire('x')
    const observer = await rig.backend()
    const startMs = performance.now()
    for (const proxy of proxies) proxy.blackhole()
    await waitFor('it is lost', async () => held.signal.aborted || null)
    expect(performance.now() - startMs).toBeLessThan(2_000)
    await expect(locker.acquire('y', { waitMs: 300 })).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    for (const proxy of proxies) proxy.heal()
    await waitFor('its session ends', async () => (await observer.inspect('x', call())) === null || null)
    expect((await locker.acquire('y')).state).toBe('held')
    await locker.close()
  })

  test('T76 a request that is given up does not count as in flight for ever', async () => {
    const session = await openSession(await rig.backend({ hosts: [hosts[0] as string] }))
    first().hold('both')
    const given = Array.from({ length: 4 }, (_, index) =>
      session.tryAcquire(request(`x${index}`), limitedCall(50)),
    )
    for (const each of given) await expect(each).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    first().heal()
    expect((await session.tryAcquire(request('y'), limitedCall(5_000))).kind).toBe('granted')
  })

  test('T51 a connection that is reset ends neither the process nor the wait', async () => {
    const [holder, waiter] = [
      await openSession(await rig.backend()),
      await openSession(await rig.backend({ hosts })),
    ]
    const result = await holder.tryAcquire(request('x'), call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    const waiting = waiter.enqueue?.(request('x'), call())
    const observer = await rig.backend()
    await waitFor('it waits', async () =>
      (await observer.inspect('x', call()))?.waiters.length === 1 ? true : null,
    )
    first().reset()
    await holder.release(result.grant, { keepForMs: 0 }, call())
    expect((await waiting)?.kind).toBe('granted')
  })
})
