/** The queue of a name on a real Consul: who is granted, what it costs, and what operators do to it. On one server, but where many wait. */
import { readFileSync } from 'node:fs'
import { type Server, waitFor, wanted } from 'holdfast-lab/servers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { limitedCall, openSession, Rig } from '../../../../test/consul/rig.ts'
import { Cancellation } from '../../../base/cancellation.ts'
import { systemClock } from '../../../base/clock.ts'
import { publicIdOf, systemRandom } from '../../../base/ids.ts'
import { isEligible } from '../../../kit/ordered-store.ts'
import type { AcquireRequest, BackendSession, Call, Grant } from '../../../spi.ts'
import { call, permits, request, shared } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { ConsulClient, createSession, lock, remove } from '../client/index.ts'
import type { ConsulBackend } from './backend.ts'

type Session = BackendSession<'fenced'>

const take = async (session: Session, asked: AcquireRequest): Promise<Grant<'fenced'>> => {
  const result = await session.tryAcquire(asked, call())
  if (result.kind !== 'granted') throw new Error(result.kind)
  return result.grant
}
const release = (session: Session, grant: Grant) => session.release(grant, { keepForMs: 0 }, call())

function enqueue(session: Session, asked: AcquireRequest, its: Call = call()) {
  const waiting = {
    state: 'waiting',
    token: 0n,
    grant: undefined as Grant | undefined,
    error: undefined as unknown,
  }
  enqueued(session, asked, its).then(
    (result) => {
      waiting.state = result.kind
      if (result.kind !== 'granted') return
      waiting.grant = result.grant
      waiting.token = result.grant.token
    },
    (error: unknown) => {
      waiting.state = 'rejected'
      waiting.error = error
    },
  )
  return waiting
}

describe.runIf(wanted('consul'))('the queue', () => {
  let rig: Rig
  beforeAll(async () => {
    rig = await Rig.start()
  })
  afterAll(() => rig?.[Symbol.asyncDispose]())
  afterEach(() => rig.clear())

  const untilWaiting = (backend: ConsulBackend, name: string, count: number) =>
    waitFor(
      `${count} wait`,
      async () => (await backend.inspect(name, call()))?.waiters.length === count || null,
    )

  test('T92 a waiter in the middle cancels: the one behind it is not granted before the holder leaves', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    const held = await take(session, request('x'))
    const middle = request('x')
    const cancelled = enqueue(session, middle)
    await untilWaiting(backend, 'x', 1)
    const last = enqueue(session, request('x'))
    await untilWaiting(backend, 'x', 2)
    await session.abandon(middle, call())
    await waitFor('the middle one ends', async () => cancelled.state === 'rejected' || null)
    // A keep-alive looks for every waiter, so whatever the wake-up has led to has happened after it.
    await session.keepAlive({ held: [], waiting: [] }, call())
    expect(last.state).toBe('waiting')
    await release(session, held)
    await waitFor('the last one is granted', async () => last.state === 'granted' || null)
    expect(last.token).toBeGreaterThan(held.token)
  })

  test('T17 T34 a waiter whose own key was deleted is not granted', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    const held = await take(session, request('x'))
    const asked = request('x')
    const waiting = enqueue(session, asked)
    await untilWaiting(backend, 'x', 1)
    for (const { Key } of await rig.operator.keys())
      if (Key.endsWith(`/c/${asked.attempt}`)) await rig.operator.deleteKey(Key)
    await release(session, held)
    await waitFor('the wait ends', async () => waiting.state !== 'waiting' || null)
    expect(waiting.error).toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
  })

  test('T34 a holder whose key was deleted by hand learns it at the next keep-alive, and nothing of it is left', async () => {
    const backend = await rig.backend()
    for (const lockDelayMs of [0, 60_000]) {
      const session = await openSession(backend, 30_000, { lockDelayMs })
      const [lost, kept] = [await take(session, request('lost')), await take(session, request('kept'))]
      const keyOf = async (part: string) =>
        (await rig.operator.keys()).find(({ Key }) => Key.includes(part) && Key.endsWith(lost.attempt))
      await rig.operator.deleteKey((await keyOf('/c/'))?.Key ?? '')
      const result = await session.keepAlive({ held: [lost, kept], waiting: [] }, call())
      if (result.kind !== 'alive') throw new Error(result.kind)
      expect(result.lost).toEqual([{ attempt: lost.attempt, reason: 'deleted' }])
      for (const claim of result.unlisted) await session.abandon(claim, call())
      await waitFor('nothing is left', async () => (await keyOf('/')) === undefined || null)
      const next = await openSession(backend)
      await release(next, await take(next, request('lost')))
      await session.close(call())
    }
  })

  test('G1 G12 a key that is not ours closes its own name: joins are told, and nothing of them is left; others that join with them are granted', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    const held = await take(session, request('held'))
    const root = (await rig.operator.keys()).find(({ Key }) => Key.includes('/c/'))?.Key.split('held/')[0]
    for (const key of ['x/foo', 'held/delay/foo', 'late/data']) await rig.operator.put(`kv/${root}${key}`)
    const [refused, granted] = [request('x'), request('y')].map((asked) => session.tryAcquire(asked, call()))
    await expect(refused).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: expect.stringContaining('/n/x/foo'),
    })
    expect((await granted)?.kind).toBe('granted')
    const keysOf = async (name: string) =>
      (await rig.operator.keys()).filter(({ Key }) => Key.includes(`/n/${name}/`)).map(({ Key }) => Key)
    expect(await keysOf('x')).toEqual([`${root}x/foo`])
    // Who holds already goes on, and so do operators.
    expect(await session.keepAlive({ held: [held], waiting: [] }, call())).toMatchObject({ lost: [] })
    const names = (await backend.list('', { limit: 10 }, call())).items.map(({ name }) => name)
    expect(names).toEqual(['held', 'late', 'x', 'y'])
    expect((await backend.inspect('late', call()))?.data).toBe(undefined)
    await release(session, held)
    expect(await keysOf('held')).toEqual([`${root}held/delay/foo`])
    await rig.operator.deleteKey(`${root}x/foo`)
    await take(session, request('x'))
    // It may have replaced a claim, whose holder learns it.
    const lost = await take(session, request('lost'))
    const replaced = `${root}lost/c/${lost.attempt}`
    await rig.operator.put(`kv/${replaced}`)
    const next = await openSession(backend)
    await expect(next.tryAcquire(request('lost'), call())).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    expect(await session.keepAlive({ held: [lost], waiting: [] }, call())).toMatchObject({
      kind: 'alive',
      lost: [{ attempt: lost.attempt, reason: 'deleted' }],
    })
    await Promise.all([session.close(call()), next.close(call())])
  })

  test('G12 keys of others among the names are left out of the list, and do not end it', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    await Promise.all(['50%', 'fo'].map((name) => take(session, request(name))))
    const root = (await rig.operator.keys()).find(({ Key }) => Key.includes('/n/50%'))?.Key.split('50%')[0]
    // As they stand in a URL: 50%/x, a b/x, and one that ends without a slash.
    for (const key of ['50%25/x', 'a%20b/x', 'foo']) await rig.operator.put(`kv/${root}${key}`)
    const { items } = await backend.list('', { limit: 10 }, call())
    expect(items.map(({ name }) => name)).toEqual(['50%', 'fo'])
    await session.close(call())
  })

  test('T34 G11 the reason of a force release is told also if the keep-alive before has found its mark and did not list the lease', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend, 600_000)
    const held = await take(session, request('x'))
    const ids = (await backend.inspect('x', call()))?.holders.map(({ id }) => id) ?? []
    const its = Object.assign(limitedCall(10_000), { notAfterMs: backend.clock.wallMs() + 10_000 })
    expect(await backend.forceRelease('x', ids, 'maintenance', its)).toBe(1)
    // It was sent before the grant was known here.
    const nothing = { held: [], waiting: [] }
    await session.keepAlive(nothing, call())
    expect(await session.keepAlive({ held: [held], waiting: [] }, call())).toMatchObject({
      lost: [{ attempt: held.attempt, reason: 'force-released', detail: 'maintenance' }],
    })
    await session.keepAlive(nothing, call())
    const marks = async () => (await rig.operator.keys()).filter(({ Key }) => Key.includes('/a/'))
    await waitFor('the mark has gone', async () => (await marks()).length === 0)
    await session.close(call())
  })

  test('T81 T73 marks of abandoned attempts go when nothing of these attempts can be under way, so keep-alives do not grow with them', async () => {
    let aheadMs = 0
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs }
    const session = await openSession(await rig.backend({ clock }), 60_000)
    const asked = Array.from({ length: 150 }, () => request('x'))
    // As after a join without an answer: it may land yet.
    await Promise.all(asked.map((each) => session.abandon(each, call())))
    const marks = async () => (await rig.operator.keys()).filter(({ Key }) => Key.includes('/a/')).length
    const nothing = { held: [], waiting: [] }
    for (const ms of [0, 20_000]) {
      aheadMs += ms
      await session.keepAlive(nothing, call())
    }
    expect(await marks()).toBe(150)
    aheadMs += 20_000
    await session.keepAlive(nothing, call())
    await waitFor('the marks have gone', async () => (await marks()) === 0 || null)
    await session.close(call())
  })

  test('T23 more tombstones than one transaction can take away: they all close the name, and the next holder takes them all away', async () => {
    const lockDelayMs = 1_000
    const backend = await rig.backend()
    const successor = await openSession(backend)
    const opening = Array.from({ length: 40 }, () => openSession(backend, 30_000, { lockDelayMs }))
    const dying = await Promise.all(opening)
    for (const session of dying) await take(session, shared('x'))
    const held = (await rig.operator.keys()).filter(({ Key }) => /\/n\/x\/(c|delay)\//.test(Key))
    expect(held).toHaveLength(80)
    const waiting = enqueue(successor, request('x'))
    await untilWaiting(backend, 'x', 1)
    for (const { Session } of held.slice(0, -1)) await rig.operator.put(`session/destroy/${Session}`)
    const beganMs = performance.now()
    await rig.operator.put(`session/destroy/${held.at(-1)?.Session}`)
    await waitFor('it is granted', async () => waiting.state === 'granted' || null)
    expect(performance.now() - beganMs).toBeGreaterThan(lockDelayMs - 50)
    const left = (await rig.operator.keys()).filter(({ Key }) => Key.includes('/delay/'))
    expect(left).toEqual([])
    await successor.close(call())
  })

  test('T23 G11 a holder beside one with a lock-delay is still shown as the holder when that one has died', async () => {
    const backend = await rig.backend()
    const dying = await openSession(backend, 30_000, { lockDelayMs: 60_000 })
    await take(dying, shared('x'))
    const sessions = new Set((await rig.operator.keys()).flatMap(({ Session }) => Session ?? []))
    const session = await openSession(backend)
    const held = await take(session, shared('x'))
    for (const id of sessions) await rig.operator.put(`session/destroy/${id}`)
    expect(await backend.inspect('x', call())).toMatchObject({
      holders: [{ id: publicIdOf(held.attempt), token: held.token }],
      waiters: [],
    })
    expect(await session.keepAlive({ held: [held], waiting: [] }, call())).toMatchObject({ lost: [] })
    await session.close(call())
  })

  test('T23 T28 nothing tells the end of a lock-delay: the first waiter asks, at most five times a second', async () => {
    const [backend, waiter] = [await rig.backend(), await rig.backend()]
    const dying = await openSession(backend, 30_000, { lockDelayMs: 2_000 })
    await take(dying, request('x'))
    const sessions = new Set((await rig.operator.keys()).flatMap(({ Session }) => Session ?? []))
    const session = await openSession(waiter)
    const waiting = [enqueue(session, request('x')), enqueue(session, request('x'))]
    await untilWaiting(backend, 'x', 2)
    const [before, beganMs] = [waiter.statistics.sent, performance.now()]
    for (const id of sessions) await rig.operator.put(`session/destroy/${id}`)
    await waitFor('one is granted', async () => waiting.some(({ state }) => state === 'granted'))
    const asked = Math.ceil((performance.now() - beganMs) / 200)
    // Each time two reads, and a write that is refused; and some polls.
    expect(waiter.statistics.sent - before).toBeLessThanOrEqual(3 * asked + 10)
    await session.close(call())
  })

  test('T23 a tombstone closes its name until the lock-delay is over; then inspect, list and the first contact of a process take it away', async () => {
    const backend = await rig.backend()
    const dying = await openSession(backend, 30_000, { lockDelayMs: 1_000 })
    const names = ['inspected', 'listed', 'contacted']
    for (const name of names) await take(dying, request(name))
    const left = async () =>
      (await rig.operator.keys())
        .filter(({ Key }) => Key.includes('/delay/'))
        .map(({ Key }) => Key.split('/')[4])
    const looks = [
      () => backend.inspect('inspected', call()),
      () => backend.list('listed', { limit: 10 }, call()),
      () => rig.backend(),
    ]
    const sessions = new Set((await rig.operator.keys()).map(({ Session }) => Session))
    for (const session of sessions)
      if (session !== undefined) await rig.operator.put(`session/destroy/${session}`)
    for (const look of looks) await look()
    expect((await left()).toSorted()).toEqual(names.toSorted())
    expect(await backend.inspect('inspected', call())).toMatchObject({ holders: [], waiters: [] })
    await waitFor('it is over', async () => (await backend.inspect('inspected', call())) === null || null)
    for (const look of looks) {
      await look()
      expect((await left()).toSorted()).toEqual(names.slice(looks.indexOf(look) + 1).toSorted())
    }
  })

  test('G6 no session of ours is left when sessions were closed, also with a lock-delay, and when a name that was kept closed is open', async () => {
    const backend = await rig.backend()
    const sessions = [
      await openSession(backend),
      await openSession(backend, 600_000, { lockDelayMs: 60_000 }),
    ]
    const [plain, delayed] = sessions as [Session, Session]
    await take(delayed, request('held'))
    await plain.release(await take(plain, request('x')), { keepForMs: 100 }, call())
    // The second one of the lock-delay, and that of the closed name.
    expect((await rig.operator.sessions()).length).toBeGreaterThanOrEqual(4)
    await Promise.all(sessions.map((session) => session.close(call())))
    await waitFor('none is left', async () => (await rig.operator.sessions()).length === 0 || null)
    expect(await rig.operator.keys('holdfast/1/rig')).toMatchObject([{ Key: expect.stringMatching(/\/id$/) }])
  })

  test('G12 a resize while more than 60 sessions use the name, and a lock-delay of more than 60 s, are refused with a sentence', async () => {
    const backend = await rig.backend()
    const asked = openSession(backend, 30_000, { lockDelayMs: 60_001 })
    await expect(asked).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: expect.stringContaining('60000 ms'),
    })
    const sessions = await Promise.all(Array.from({ length: 61 }, () => openSession(backend)))
    const held = await Promise.all(sessions.map((session) => take(session, permits('pool', 1, 100))))
    const resize = () => {
      const its = Object.assign(limitedCall(10_000), { notAfterMs: backend.clock.wallMs() + 10_000 })
      return backend.resize('pool', { from: 100, to: 70 }, its)
    }
    await expect(resize()).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: expect.stringContaining('60 sessions'),
    })
    await release(sessions[0] as Session, held[0] as Grant)
    expect(await resize()).toBe('resized')
  })

  test('a keep-alive of 1,000 leases is a renewal and 16 reads', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    const held = await Promise.all(
      Array.from({ length: 1_000 }, (_, index) => take(session, request(`lease ${index}`))),
    )
    const before = backend.statistics.sent
    const kept = await session.keepAlive({ held, waiting: [] }, call())
    expect(kept).toMatchObject({ kind: 'alive', lost: [], unlisted: [] })
    expect(backend.statistics.sent - before).toBe(17)
    await session.close(call())
  })

  test('G9 with 30 waiters in one process, each grant costs at most six requests, with its release and the next wait', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    const [waiters, rounds] = [30, 5]
    let grants = 0
    const holding = async () => {
      for (let round = 0; round < rounds; round++) {
        const result = await enqueued(session, request('x'), call())
        if (result.kind !== 'granted') throw new Error(result.kind)
        grants++
        await release(session, result.grant)
      }
    }
    const before = backend.statistics.sent
    await Promise.all(Array.from({ length: waiters }, holding))
    expect(grants).toBe(waiters * rounds)
    expect((backend.statistics.sent - before) / grants).toBeLessThanOrEqual(6)
    await session.close(call())
  })

  test('T18 G11 a session that an operator destroys ends its claims and its waits', async () => {
    const backend = await rig.backend()
    const [holder, doomed] = [await openSession(backend), await openSession(backend)]
    await take(holder, request('x'))
    const asked = request('x')
    const waiting = enqueue(doomed, asked)
    await untilWaiting(backend, 'x', 1)
    const claim = (await rig.operator.keys()).find(({ Key }) => Key.endsWith(`/c/${asked.attempt}`))
    await rig.operator.put(`session/destroy/${claim?.Session}`)
    await waitFor('the wait ends', async () => waiting.state === 'session-gone' || null)
    expect((await doomed.keepAlive({ held: [], waiting: [] }, call())).kind).toBe('gone')
    expect((await doomed.tryAcquire(request('x'), call())).kind).toBe('session-gone')
  })

  test('G9 T28 with 500 waiting, a release costs about as many requests as with 5, and wakes one', async () => {
    const costOf = async (waiters: number) => {
      const backend = await rig.backend()
      const session = await openSession(backend)
      const held = await take(session, request('x'))
      const waiting = Array.from({ length: waiters }, () => enqueue(session, request('x')))
      await untilWaiting(backend, 'x', waiters)
      await session.keepAlive({ held: [held], waiting: [] }, call())
      const before = backend.statistics.sent
      await release(session, held)
      await waitFor('one is granted', async () => waiting.some(({ state }) => state === 'granted') || null)
      // Whatever else was woken would have asked by the time that this is answered.
      await session.keepAlive({ held: [], waiting: [] }, call())
      expect(waiting.filter(({ state }) => state === 'granted')).toHaveLength(1)
      const cost = backend.statistics.sent - before
      await session.close(call())
      await rig.clear()
      return cost
    }
    // Delete, polls, confirm, and the two of the keep-alive. A poll may see two changes at once, or each by itself.
    const few = await costOf(5)
    expect(few).toBeLessThanOrEqual(9)
    expect(await costOf(500)).toBeLessThanOrEqual(9)
  })

  test('G8 G9 many calls for one name join together: 16 in one transaction, with different places in the queue', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend)
    const held = await take(session, request('x'))
    const before = backend.statistics.sent
    const asked = Array.from({ length: 200 }, () => request('x'))
    const waiting = asked.map((each) => enqueue(session, each))
    await waitFor('all wait', async () => {
      const keys = await rig.operator.keys()
      return keys.filter(({ Key }) => Key.includes('/c/')).length === 201
    })
    // Each alone would be 200.
    expect(backend.statistics.sent - before).toBeLessThan(50)
    const order = (await backend.inspect('x', call()))?.waiters.map(({ id }) => id)
    expect(order).toHaveLength(200)
    await release(session, held)
    for (const id of order?.slice(0, 40) ?? []) {
      const next = waiting[asked.findIndex(({ attempt }) => publicIdOf(attempt) === id)]
      await waitFor('the next one is granted', async () => next?.grant ?? null)
      expect(waiting.filter(({ state }) => state === 'granted')).toEqual([next])
      await release(session, next?.grant as Grant)
      if (next !== undefined) next.state = 'released'
    }
    await session.close(call())
  })

  test('T89 500 wait on one name and 300 names are waited for: few connections, also at the server, and also after all have cancelled', async () => {
    await using three = await Rig.start({ members: 3 })
    const [member] = three.cluster.members as readonly [Server]
    const backend = await three.backend()
    const [holder, session] = [await openSession(backend), await openSession(backend)]
    const names = Array.from({ length: 300 }, (_, index) => `name ${index}`)
    const held = await Promise.all(['one', ...names].map((name) => take(holder, request(name))))
    const giveUp = new Cancellation()
    const asked = [...Array.from({ length: 500 }, () => 'one'), ...names].map((name) => request(name))
    const waiting = asked.map((each) => enqueue(session, each, giveUp))
    await untilWaiting(backend, 'one', 500)
    await untilWaiting(backend, 'name 299', 1)
    expect(connectionsAt(member.port)).toBeLessThanOrEqual(20)
    expect(backend.statistics.polls).toBeLessThanOrEqual(9)
    // Also a name without a poll of its own is handed on.
    await release(holder, held.at(-1) as Grant)
    await waitFor('it is granted', async () => waiting.at(-1)?.state === 'granted' || null)
    giveUp.cancel(new Error('all give up'))
    await waitFor('all have given up', async () => waiting.every(({ state }) => state !== 'waiting') || null)
    await Promise.all(asked.slice(0, -1).map((each) => session.abandon(each, call())))
    expect(connectionsAt(member.port)).toBeLessThanOrEqual(20)
    await waitFor('no poll is left', async () => backend.statistics.polls === 0 || null)
    expect(connectionsAt(member.port)).toBeLessThanOrEqual(20)
    await Promise.all([holder.close(call()), session.close(call())])
  })

  test('G1 T78 a capacity that is changed while permits come and go: the holders fit at every moment', async () => {
    const backend = await rig.backend()
    const sessions = await Promise.all(Array.from({ length: 4 }, () => openSession(backend)))
    const [first] = sessions as [Session]
    const anchor = await take(first, permits('pool', 1, 3))
    let isOver = false
    const working = sessions.map(async (session) => {
      while (!isOver) {
        const capacity = (await backend.inspect('pool', call()))?.capacity ?? 3
        const result = await session.tryAcquire(permits('pool', 1, capacity), call()).catch(() => null)
        if (result?.kind !== 'granted') continue
        const seen = await backend.inspect('pool', call())
        const weight = seen?.holders.reduce((sum, each) => sum + each.weight, 0) ?? 0
        if (weight > (seen?.capacity ?? 0)) throw new Error(`${weight} of ${seen?.capacity}`)
        await release(session, result.grant)
      }
    })
    const answers = new Set<string>()
    const resizing = (async () => {
      for (let tries = 0; tries < 200 || !answers.has('resized'); tries++) {
        const from = (await backend.inspect('pool', call()))?.capacity ?? 0
        const to = from === 3 ? 2 : 3
        const its = Object.assign(limitedCall(10_000), { notAfterMs: backend.clock.wallMs() + 10_000 })
        answers.add(await backend.resize('pool', { from, to }, its))
      }
    })()
    await resizing.finally(() => {
      isOver = true
    })
    await Promise.all(working)
    await release(first, anchor)
    for (const session of sessions) await session.close(call())
  })

  test('G1 T78 while an operator changes a name nothing is granted, neither by a join nor by a view from before', async () => {
    const backend = await rig.backend({ namespace: 'alone' })
    const open = async () => {
      const id = systemRandom.id() + systemRandom.id()
      return (await backend.openClaims({ id, ttlMs: 30_000, holder: 'ada' }, call())).claims
    }
    const [claims, other] = [await open(), await open()]
    const first = await claims.join(permits('pool', 2, 3), true, call())
    if (first.kind !== 'granted') throw new Error(first.kind)
    const asked = permits('pool', 2, 3)
    const waiting = await other.join(asked, true, call())
    if (waiting.kind !== 'created') throw new Error(waiting.kind)
    const [held] = (await backend.names.read('pool', call())).holders
    await claims.release(
      { name: 'pool', attempt: held?.attempt ?? '', grantId: String(first.token) },
      0,
      call(),
    )
    const seen = (await other.look(asked, call())).queue(waiting.own, 3)
    expect(isEligible(seen)).toBe(true)
    await using stack = new AsyncDisposableStack()
    const client = new ConsulClient('consul', { hosts: rig.hosts }, backend.clock)
    stack.defer(() => client.close())
    const session = await createSession(client, { ttlMs: 30_000, behavior: 'delete' }, call())
    const operator = 'holdfast/1/alone/n/pool/operator'
    await client.transact([lock(operator, '', session)], call())
    const confirmed = await other.confirm(asked, waiting.own, seen, call())
    expect(confirmed).not.toHaveProperty('kind')
    const late = await claims.join(permits('pool', 1, 3), true, call())
    expect(late.kind).toBe('created')
    await client.transact([remove(operator)], call())
    const again = (await other.look(asked, call())).queue(waiting.own, 3)
    expect(await other.confirm(asked, waiting.own, again, call())).toHaveProperty('token')
  })

  test('T84 data is not stored under a claim that was made anew since it was read', async () => {
    const backend = await rig.backend()
    const id = systemRandom.id() + systemRandom.id()
    const { claims } = await backend.openClaims({ id, ttlMs: 30_000, holder: 'ada' }, call())
    const asked = request('x')
    const joined = await claims.join(asked, true, call())
    if (joined.kind !== 'granted') throw new Error(joined.kind)
    const grantId = String(joined.token)
    const own = await claims.held({ name: 'x', attempt: asked.attempt, grantId }, call())
    if (own === undefined) throw new Error('it is not held')
    const { Value } = (await rig.operator.keys()).find(({ Key }) => Key === own.key) ?? {}
    await using stack = new AsyncDisposableStack()
    const client = new ConsulClient('consul', { hosts: rig.hosts }, backend.clock)
    stack.defer(() => client.close())
    // As a late copy of the join does after a deletion.
    await client.transact([remove(own.key)], call())
    await client.transact([lock(own.key, Buffer.from(Value ?? '', 'base64').toString(), own.session)], call())
    const record = { data: 'left', id: own.id, holder: 'ada', token: grantId }
    expect(await claims.putData(own, record, call())).toBe(false)
    expect((await backend.inspect('x', call()))?.data).toBe(undefined)
    await claims.close(call())
  })

  test('G6 when sessions have ended, nothing is left in Consul but the data cell and the id', async () => {
    const backend = await rig.backend()
    const session = await openSession(backend, 30_000, { lockDelayMs: 5_000 })
    const held = await take(session, request('x'))
    await session.setData?.(held, 'a note', call())
    await session.abandon(request('x'), call())
    enqueue(session, request('x'))
    await untilWaiting(backend, 'x', 1)
    await session.close(call())
    const left = (await rig.operator.keys()).map(({ Key }) => Key)
    expect(left).toEqual([expect.stringMatching(/\/id$/), expect.stringMatching(/\/n\/x\/data$/)])
    await waitFor('no session is left', async () => (await rig.operator.sessions()).length === 0 || null)
  })
})

/** That are established, as the server has them. */
function connectionsAt(port: number): number {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const rows = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((row) => row.trim().split(/\s+/))
  return rows.filter(([, address, , state]) => address?.endsWith(local) && state === '01').length
}
