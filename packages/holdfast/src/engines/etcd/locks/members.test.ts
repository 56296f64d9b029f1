/** Members that are stopped, killed, cut off and restarted while leases are held and waiters are queued. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Server, waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { limitedCall, openSession, Rig } from '../../../../test/etcd/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { createLocker } from '../../../locker/locker.ts'
import { call, request } from '../../../testing/conformance/requests.ts'

describe.runIf(wanted('etcd'))('members of a cluster', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start({ members: 3, partitions: true })
  })
  afterAll(() => rig[Symbol.asyncDispose]())
  afterEach(async () => {
    rig.cluster.heal()
    for (const member of rig.cluster.members) await member.resume().catch(() => {})
    // Each of them has a leader again.
    for (const { url } of rig.cluster.members) await rig.keys(url)
    await rig.clear()
  })

  const others = (one: Server) => rig.cluster.members.filter((member) => member !== one)
  /** The one that is meant comes first. */
  const hostsFrom = (first: Server) => [first, ...others(first)].map(({ url }) => url)
  const lockerOn = async (first: Server, ttlMs = 6_000) =>
    createLocker(await rig.backend({ hosts: hostsFrom(first) }), { ttlMs, waitMs: 30_000 })

  test('T63 T88 a leader that was stopped and has been replaced confirms a keep-alive, and it does not count', async () => {
    const leader = await rig.cluster.leader()
    const session = await openSession(await rig.backend({ hosts: [leader.url] }), 2_000)
    const grant = await session.tryAcquire(request('x'), call())
    expect(grant.kind).toBe('granted')
    await leader.pause()
    // They wait in the socket of the stopped leader, which answers when it runs again, before it learns that it was replaced.
    const late = Array.from({ length: 5 }, () =>
      session.keepAlive({ held: [], waiting: [] }, limitedCall(20_000)),
    )
    const settled = Promise.allSettled(late)
    const [successor] = others(leader)
    await waitFor(
      'the new leader ends the session',
      async () => (await rig.keys(successor?.url)).length === 0 || null,
    )
    await leader.resume()
    for (const outcome of await settled)
      if (outcome.status === 'fulfilled') expect(outcome.value.kind).toBe('gone')
      else expect(isHoldfastError(outcome.reason, 'BACKEND_UNAVAILABLE')).toBe(true)
  })

  test('G3 T63 a leader that is cut off from the others answers keep-alives for a while, and they do not count', async () => {
    const leader = await rig.cluster.leader()
    // It holds nothing, so nothing but the session itself is read.
    const session = await openSession(await rig.backend({ hosts: [leader.url] }))
    await rig.cluster.cutOff(leader)
    // It takes an election time-out until the leader knows that it is alone.
    const kept = session.keepAlive({ held: [], waiting: [] }, limitedCall(3_000))
    await expect(kept).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
  })

  test.each(['pause', 'kill'] as const)(
    'G1 G10 the leader is gone (%s) while a lease is held and another waits: it stays held, and then goes to the waiter',
    async (how) => {
      const leader = await rig.cluster.leader()
      const [holder, waiter] = [await lockerOn(leader), await lockerOn(leader)]
      const held = await holder.acquire('x')
      const waiting = waiter.acquire('x')
      await waitFor('it waits', async () => ((await holder.inspect('x'))?.waiters.length === 1 ? true : null))
      await leader[how]()
      await sleep(3_000)
      expect(held.state).not.toBe('lost')
      const next = await Promise.race([waiting.then(() => 'granted'), sleep(10, 'waits')])
      expect(next).toBe('waits')
      // A request that the stopped member has got is unknown, and is made certain in the background.
      expect(await held.release()).toMatch(how === 'kill' ? /^released$/ : /^(released|unknown)$/)
      const taken = await waiting
      expect(taken.fence.token).toBeGreaterThan(held.fence.token)
      await (how === 'pause' ? leader.resume() : leader.restart())
      await taken.release()
      await Promise.all([holder.close(), waiter.close()])
      expect(await rig.keys()).toEqual([])
    },
  )

  test('T98 what a stopped leader was to propose is asked again, and answered by its successor', async () => {
    const leader = await rig.cluster.leader()
    const [follower] = others(leader) as [Server]
    const session = await openSession(await rig.backend({ hosts: hostsFrom(follower) }))
    const take = async (name: string) => {
      const result = await session.tryAcquire(request(name), call())
      if (result.kind !== 'granted') throw new Error(result.kind)
      return result.grant
    }
    const held = await take('held')
    const keepAlive = () => session.keepAlive({ held: [held], waiting: [] }, call())
    await leader.pause()
    // etcd itself gives all of them up after 7 s, and says that their outcome is unknown.
    const [taken, kept, released] = await Promise.all([
      take('x'),
      // An answer from before the election does not count (T63, resumed old leaders), and is asked for once more.
      keepAlive().catch(keepAlive),
      session.release(held, { keepForMs: 0 }, call()),
    ])
    expect([kept, released]).toMatchObject([{ kind: 'alive' }, 'released'])
    await leader.resume()
    await waitFor('the old leader follows', async () => (await rig.keys(leader.url)).length > 0 || null)
    // Whatever the old leader still had to propose has come to nothing, or is told.
    const later = await session.keepAlive({ held: [taken], waiting: [] }, call())
    expect(later).toMatchObject({ kind: 'alive', lost: [] })
  })

  test('G10 a follower is cut off from its leader while a waiter is on it: the waiter goes to another member', async () => {
    const leader = await rig.cluster.leader()
    const [follower] = others(leader) as [Server]
    const [holder, waiter] = [await lockerOn(leader), await lockerOn(follower)]
    const held = await holder.acquire('x')
    const waiting = waiter.acquire('x')
    await waitFor('it waits', async () => ((await holder.inspect('x'))?.waiters.length === 1 ? true : null))
    await rig.cluster.cutOff(follower)
    await held.release()
    const taken = await waiting
    expect(taken.state).toBe('held')
    await taken.release()
    await Promise.all([holder.close(), waiter.close()])
  })

  test('T56 G11 without a majority a call fails, and is never answered', async () => {
    const leader = await rig.cluster.leader()
    const [one, two] = others(leader) as [Server, Server]
    const backend = await rig.backend({ hosts: [leader.url] })
    const session = await openSession(backend)
    await session.tryAcquire(request('x'), call())
    await Promise.all([one.pause(), two.pause()])
    for (const ask of [
      () => backend.inspect('x', limitedCall(2_500)),
      () => session.tryAcquire(request('y'), limitedCall(2_500)),
      () => session.keepAlive({ held: [], waiting: [] }, limitedCall(2_500)),
    ])
      await expect(ask()).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    await Promise.all([one.resume(), two.resume()])
  })

  test('G2 G13 all members are restarted at once: a lease that is held stays held, and tokens go on', async () => {
    const [member] = rig.cluster.members as readonly [Server]
    const locker = await lockerOn(member, 15_000)
    const held = await locker.acquire('x')
    await Promise.all(rig.cluster.members.map((each) => each.kill()))
    await Promise.all(rig.cluster.members.map((each) => each.restart()))
    await rig.cluster.leader()
    expect(await locker.check(held.fence)).toBe(true)
    expect(await held.release()).toBe('released')
    const next = await locker.acquire('x')
    expect(next.fence.token).toBeGreaterThan(held.fence.token)
    await next.release()
    await locker.close()
  })
})
