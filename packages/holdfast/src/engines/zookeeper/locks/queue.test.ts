/** The queue of a name on a real ensemble: what it costs, and what becomes of its nodes. */
import { fourLetterWord, waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { openSession, Rig } from '../../../../test/zookeeper/rig.ts'
import { useUp } from '../../../../test/zookeeper/used-up.ts'
import { systemClock } from '../../../base/clock.ts'
import type { BackendSession, Grant } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'

const take = async (session: BackendSession<'fenced'>, asked = request('x')): Promise<Grant<'fenced'>> => {
  const result = await session.tryAcquire(asked, call())
  if (result.kind !== 'granted') throw new Error(result.kind)
  return result.grant
}
const release = (session: BackendSession<'fenced'>, grant: Grant) =>
  session.release(grant, { keepForMs: 0 }, call())

describe.runIf(wanted('zookeeper'))('the queue', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start({ members: 3, settings: { maxSessionTimeout: '60000' } })
  })
  afterAll(() => rig[Symbol.asyncDispose]())
  afterEach(async () => {
    await rig.clear()
    expect(await rig.remains()).toEqual([])
  })

  const waiting = async (session: BackendSession<'fenced'>, count: number, granted: Grant<'fenced'>[]) => {
    const ended: Promise<unknown>[] = []
    for (let waiter = 0; waiter < count; waiter++) {
      const queued = Promise.withResolvers<void>()
      const result = enqueued(session, request('x'), Object.assign(call(), { queued: queued.resolve }))
      ended.push(
        (result ?? Promise.reject(new Error('no queue'))).then((answer) => {
          if (answer.kind !== 'granted') throw new Error(answer.kind)
          granted.push(answer.grant)
        }),
      )
      await queued.promise
    }
    return Promise.all(ended)
  }

  test('G10 T20 a dead waiter whose TTL is longer than the holder’s costs its own TTL, and not more', async () => {
    const living = await openSession(await rig.backend())
    const backends = [await rig.backend(), await rig.backend()] as const
    const [holder, dead] = [await openSession(backends[0], 2_000), await openSession(backends[1], 4_000)]
    await take(holder)
    const gone = expect(enqueued(dead, request('x'), call())).rejects.toMatchObject({ code: 'CLOSED' })
    const claims = async () => (await rig.remains()).filter((path) => /\/n\/x\//.test(path)).length
    await waitFor('it waits', async () => (await claims()) === 2 || null)
    const startMs = performance.now()
    // As if both processes had ended.
    await Promise.all(backends.map((backend) => backend[Symbol.asyncDispose]()))
    await gone
    await waitFor('the holder has gone', async () => (await claims()) < 2 || null)
    const holderMs = performance.now() - startMs
    const granted: Grant<'fenced'>[] = []
    await waiting(living, 1, granted)
    const bothMs = performance.now() - startMs
    // Twice as long, and not the one after the other.
    expect(bothMs / holderMs).toBeLessThan(2.6)
    await living.close(call())
  })

  test('G10 T20 a waiter whose keep-alive is overdue sends nothing when it is woken, and is granted after a keep-alive; without one, others pass it when its session ends', async () => {
    const ttlMs = 4_000
    let aheadMs = 0
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs }
    const [backend, direct] = [await rig.backend({ clock }), await rig.backend()]
    const [late, holder, next] = [
      await openSession(backend, ttlMs),
      await openSession(direct),
      await openSession(direct),
    ]
    // Five round trips: what a woken waiter sends has been sent before they are over.
    const turns = async () => {
      for (let turn = 0; turn < 5; turn++) await backend.list('no such name', { limit: 1 }, call())
    }
    const began = backend.statistics.sent
    await turns()
    const sentInTurns = backend.statistics.sent - began

    for (const isKeptAlive of [true, false]) {
      const [held, granted, passed] = [await take(holder), [] as Grant<'fenced'>[], [] as Grant<'fenced'>[]]
      const itsEnd = waiting(late, 1, granted).catch((error: Error) => error.message)
      const claims = async () => (await rig.remains()).filter((path) => /\/n\//.test(path)).length
      await waitFor('it waits', async () => (await claims()) === 2 || null)
      const end = waiting(next, 1, passed)
      await waitFor('both wait', async () => (await claims()) === 3 || null)
      aheadMs += 0.7 * ttlMs
      const before = backend.statistics.sent
      await release(holder, held)
      await turns()
      expect([backend.statistics.sent - before, granted, passed]).toEqual([sentInTurns, [], []])
      if (isKeptAlive) {
        expect((await late.keepAlive({ held: [], waiting: [] }, call())).kind).toBe('alive')
        await itsEnd
        await release(late, granted[0] as Grant)
      }
      await end
      expect(granted).toHaveLength(isKeptAlive ? 1 : 0)
      await release(next, passed[0] as Grant)
    }
  })

  test('G9 T28 a release costs the same with 20 and with 500 waiters, and a keep-alive meanwhile loses no wake-up', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    /** Each waiter watches its own claim and the one before it. That one is watched by its own waiter as well. */
    const watch = (waiters: number) =>
      waitFor(`the watches of ${waiters}, and no more`, async () => {
        const told = await Promise.all(rig.cluster.members.map((member) => fourLetterWord(member, 'wchs')))
        const watches = told.map((each) => Number(/Total watches:(\d+)/.exec(each)?.[1]))
        return watches.reduce((sum, each) => sum + each) === waiters + 1
      })
    const cost = async (waiters: number) => {
      const granted = [await take(session)]
      const ended = waiting(session, waiters, granted)
      await waitFor('all wait', async () => (await rig.remains()).length === 2 * waiters + 3 || null)
      await session.keepAlive({ held: [], waiting: [] }, call())
      await watch(waiters)
      const before = backend.statistics.sent
      for (let count = 0; count < 10; count++) {
        await release(session, granted[count] as Grant)
        await waitFor('the next is granted', async () => granted.length === count + 2 || null)
      }
      const sent = backend.statistics.sent - before
      await watch(waiters - 10)
      // The others are handed on while keep-alives re-attach the session.
      for (let count = 10; count < waiters; count++) {
        const [released] = await Promise.all([
          release(session, granted[count] as Grant),
          count % 20 === 0 ? session.keepAlive({ held: [], waiting: [] }, call()) : undefined,
        ])
        expect(released).toBe('released')
        await waitFor('the next is granted', async () => granted.length === count + 2 || null, { everyMs: 1 })
      }
      await ended
      await release(session, granted[waiters] as Grant)
      expect(granted.map(({ token }) => token)).toEqual(
        granted.map(({ token }) => token).toSorted((a, b) => (a < b ? -1 : 1)),
      )
      return sent
    }
    const few = await cost(20)
    // And a ping or two.
    expect(await cost(500)).toBeLessThanOrEqual(few + 2)
    await session.close(call())
  })

  test('a container that is reaped between two joins is made again', async () => {
    const session = await openSession(await rig.backend())
    const first = await take(session)
    await release(session, first)
    await rig.operator.delete(`${rig.root}/n/x`)
    const second = await take(session)
    expect(second.token).toBeGreaterThan(first.token)
    await session.close(call())
  })

  test('processes that meet on a reaped container are granted or busy, and no error', async () => {
    const sessions: BackendSession<'fenced'>[] = []
    for (let process = 0; process < 8; process++) {
      const session = await openSession(await rig.backend())
      await release(session, await take(session))
      sessions.push(session)
    }
    for (let round = 0; round < 3; round++) {
      await rig.operator.delete(`${rig.root}/n/x`)
      const results = await Promise.all(sessions.map((each) => each.tryAcquire(request('x'), call())))
      expect(results.map(({ kind }) => kind).toSorted()).toEqual([...Array(7).fill('busy'), 'granted'])
      const holder = results.findIndex(({ kind }) => kind === 'granted')
      const result = results[holder]
      if (result?.kind === 'granted') await release(sessions[holder] as (typeof sessions)[0], result.grant)
    }
    await Promise.all(sessions.map((each) => each.close(call())))
  })
})

describe.runIf(wanted('zookeeper'))('the claims of a session', () => {
  test('are fewer than ZooKeeper can end at once: it is full, then it refuses more until some are released', async () => {
    await using rig = await Rig.start({ settings: { maxSessionTimeout: '60000' } })
    const session = await openSession(await rig.backend())
    const bytes = async () => (await rig.remains()).reduce((sum, path) => sum + 4 + path.length, 0)
    // A dot takes three characters of a path.
    const asked = (index: number) => request(`${index}${'.'.repeat(250)}`)
    const grants: Grant<'fenced'>[] = []
    const takeMore = async () => {
      const results = Array.from({ length: 20 }, (_, index) => take(session, asked(grants.length + index)))
      for (const result of await Promise.allSettled(results))
        if (result.status === 'fulfilled') grants.push(result.value)
        else throw result.reason
    }
    while (session.isFull !== true) await takeMore()
    expect(await bytes()).toBeGreaterThan(200_000)
    const takeAll = async () => {
      for (;;) await takeMore()
    }
    const notApplied = { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' }
    await expect(takeAll()).rejects.toMatchObject(notApplied)
    expect(await bytes()).toBeGreaterThan(400_000)
    expect(await bytes()).toBeLessThan(2 ** 20)
    const half = grants.splice(0, grants.length / 2 + 60)
    await Promise.all(half.map((grant) => release(session, grant)))
    expect(session.isFull).toBe(false)
    grants.push(await take(session))
    await session.close(call())
  })

  test('count before they are answered: of too many in one moment, the last are refused', async () => {
    await using rig = await Rig.start()
    const session = await openSession(await rig.backend())
    const asked = Array.from({ length: 700 }, (_, index) => request(`${index}${'.'.repeat(250)}`))
    const results = await Promise.allSettled(asked.map((each) => session.tryAcquire(each, call())))
    const isTaken = results.map(({ status }) => status === 'fulfilled')
    expect(isTaken.lastIndexOf(true)).toBeGreaterThan(500)
    expect(isTaken.indexOf(false)).toBe(isTaken.lastIndexOf(true) + 1)
    await session.close(call())
  })
})

describe.runIf(wanted('zookeeper'))('sequence numbers', () => {
  test('T35 they are used up: the name starts anew when it is free, with its data, and its tokens go on', async () => {
    await using rig = await Rig.start()
    const [member] = rig.cluster.members
    if (member === undefined) throw new Error('no member')
    const backend = await rig.backend()
    const session = await openSession(backend)
    const held = await take(session)
    await session.setData?.(held, 'kept', call())
    await release(session, held)
    await session.close(call())
    await member.kill()
    useUp(member.folder, `${rig.root}/n/x/exclusive`, 2 ** 31 - 3)
    await member.restart()

    // Without a limit: two nodes with one number, and each would be the first.
    const operator = await rig.operator.session()
    const create = async (name: string) => {
      const path = `${rig.root}/n/x/${name}.`
      const created = await operator.ask({ op: 'create', path, mode: 'ephemeral-sequential' }, call())
      if (!created.ok) throw new Error(created.code)
      return created.path.slice(-10)
    }
    const numbers: string[] = []
    for (const name of ['a', 'b', 'c', 'd', 'e']) numbers.push(await create(name))
    expect(new Set(numbers.slice(-3))).toEqual(new Set(['2147483647']))
    for (const path of await rig.operator.nodes(`${rig.root}/n/x`))
      if (!path.endsWith('/data')) await rig.operator.delete(path)

    const [one, other] = [await openSession(backend), await openSession(backend)]
    const notApplied = { code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' }
    await expect(one.tryAcquire(request('x'), call())).rejects.toMatchObject(notApplied)
    const result = await one.tryAcquire(request('x'), call())
    if (result.kind !== 'granted') throw new Error(result.kind)
    expect(result.grant.previousData).toBe('kept')
    expect(result.grant.token).toBeGreaterThan(held.token)
    expect((await other.tryAcquire(request('x'), call())).kind).toBe('busy')
    const paths = await rig.operator.nodes(`${rig.root}/n/x`)
    expect(paths.some((path) => /\.000000000\d$/.test(path))).toBe(true)
  })
})
