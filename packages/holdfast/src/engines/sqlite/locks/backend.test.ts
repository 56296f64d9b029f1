import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { namingGrants } from '../../../../test/naming-grants.ts'
import { type FullSession, SqliteRig, watch } from '../../../../test/sqlite/rig.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { listAll } from '../../../kit/backend-kit.ts'
import type { AcquireRequest } from '../../../spi.ts'
import { Operator } from '../../../testing/conformance/operator.ts'
import { call, permits, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { sqlite } from './index.ts'

const nothing = { sessions: 0, holders: 0, waiters: 0, marks: 0, names: 0 }
const release = { keepForMs: 0 }

describe('nothing is left behind', () => {
  test('G6 when everything was given back, in any way, no row remains', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    const held = request('held')
    await session.tryAcquire(held, call())
    const waiting = watch(enqueued(session, request('held'), call()))
    const dying = await rig.session(rig.open(), 1_000)
    await dying.tryAcquire(request('dying', { lockDelayMs: 500 }), call())
    await session.tryAcquire(request('forced'), call())
    const kept = request('kept')
    await session.tryAcquire(kept, call())
    await session.setData(kept, 'for the next', call())
    await session.release(kept, { keepForMs: 700 }, call())
    await session.abandon(request('abandoned'), call())
    await rig.clock.advance(1_500)
    await session.release(held, release, call())
    assert.equal(waiting.state, 'fulfilled')
    assert.equal(await new Operator(client).force('forced'), 1)
    assert.equal(await new Operator(client).forget('kept'), 'forgotten')
    await session.close(call())
    assert.deepEqual(rig.rows(), nothing)
  })

  test('G6 T20 sessions that died are removed with everything by the next write', async () => {
    await using rig = new SqliteRig()
    for (let dead = 0; dead < 10; dead++) {
      const session = await rig.session(rig.open(), 1_000)
      for (let index = 0; index < 20; index++) await session.tryAcquire(request(`${dead}/${index}`), call())
      await session.abandon(request('x'), call())
      watch(enqueued(session, request('0/0'), call()))
    }
    await rig.clock.settle()
    assert.deepEqual(rig.rows(), { sessions: 10, holders: 200, waiters: 10, marks: 10, names: 0 })
    await rig.closeAll()
    await rig.clock.advance(1_000)
    await rig.session()
    assert.deepEqual(rig.rows(), { ...nothing, sessions: 1 })
  })

  test('G6 a lock-delay and a hold-at-least leave no row when they are over', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client, 60_000)
    const asked = Array.from({ length: 10 }, (_, index) => request(`closed ${index}`))
    for (const each of asked) await session.tryAcquire(each, call())
    for (const each of asked) await session.release(each, { keepForMs: 100 }, call())
    assert.equal(rig.rows().names, 10)
    await rig.clock.advance(100)
    await session.keepAlive({ held: [], waiting: [] }, call())
    assert.deepEqual(rig.rows(), { ...nothing, sessions: 1 })
  })

  test('T38 names that are used once leave nothing that grows', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    for (let round = 0; round < 20; round++) {
      const asked = Array.from({ length: 200 }, (_, index) => request(`order ${round}/${index}`))
      await Promise.all(asked.map((each) => session.tryAcquire(each, call())))
      await Promise.all(asked.map((each) => session.release(each, release, call())))
    }
    assert.deepEqual(rig.rows(), { ...nothing, sessions: 1 })
    const [size] = rig.sql('PRAGMA page_count')
    assert(Number(size?.page_count) < 400, `${size?.page_count} pages`)
  })
})

describe('names and namespaces', () => {
  test('SQL, wildcards and other scripts in names, labels, notes and data are only text', async () => {
    await using rig = new SqliteRig()
    const client = rig.open({ namespace: "x'; DROP TABLE holders; --" })
    const nasty = [
      "'; DROP TABLE sessions; --",
      '%',
      '_',
      '"x"',
      'a) OR 1=1 --',
      '日本 🦀',
      '?1',
      ':name',
      '__proto__',
    ]
    const session = namingGrants(
      await client.openSession({ id: systemRandom.id(), ttlMs: 5_000, holder: "O'Brien; --" }, call()),
    )
    for (const name of nasty) {
      const asked = request(name, { note: `${name} noted` })
      assert.equal((await session.tryAcquire(asked, call())).kind, 'granted')
      assert.equal((await session.tryAcquire(request(name), call())).kind, 'busy')
      assert.equal(await session.setData(asked, name, call()), 'stored')
      const shown = await client.inspect(name, call())
      assert.deepEqual(
        [shown?.name, shown?.data, shown?.holders[0]?.note, shown?.holders[0]?.holder],
        [name, name, `${name} noted`, "O'Brien; --"],
      )
    }
    assert.equal((await listAll(client, '', call())).length, nasty.length)
    assert.equal(rig.rows().holders, nasty.length)
  })

  test('namespaces are separate worlds in one file, with one count of tokens', async () => {
    await using rig = new SqliteRig()
    const [red, blue] = [rig.open({ namespace: 'red' }), rig.open({ namespace: 'blue' })]
    const [inRed, inBlue] = [await rig.session(red), await rig.session(blue)]
    const [one, other] = [
      await inRed.tryAcquire(request('x'), call()),
      await inBlue.tryAcquire(request('x'), call()),
    ]
    assert(one.kind === 'granted' && other.kind === 'granted' && other.grant.token > one.grant.token)
    assert.equal(await blue.attachSession(inRed.handle, call()), null)
    assert.equal(await new Operator(blue).force('x', ({ token }) => token === one.grant.token), 0)
    assert.equal((await listAll(red, '', call())).length, 1)
    assert.match(red.info.issuer, /^sqlite:[\w-]{22}\/red$/)
    assert.equal(red.info.issuer.replace('/red', '/blue'), blue.info.issuer)
  })

  test('a session id belongs to one namespace', async () => {
    await using rig = new SqliteRig()
    const asked = { id: 'the same', ttlMs: 1_000, holder: 'x' }
    await rig.open({ namespace: 'red' }).openSession(asked, call())
    await assert.rejects(rig.open({ namespace: 'blue' }).openSession(asked, call()), (error) =>
      isHoldfastError(error, 'INVALID_ARGUMENT'),
    )
  })
})

describe('T1 belief counts from the sending', () => {
  test('of a keep-alive and of the opening of a session, however long the file takes', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const openedAtMs = rig.clock.monotonicMs()
    const opening = client.openSession({ id: 'slow', ttlMs: 10_000, holder: 'h' }, call())
    rig.clock.block(700)
    const session = await opening
    assert.equal(session.since.monotonicMs, openedAtMs)
    const sentAtMs = rig.clock.monotonicMs()
    const keeping = session.keepAlive({ held: [], waiting: [] }, call())
    rig.clock.block(900)
    const kept = await keeping
    assert(kept.kind === 'alive')
    assert.equal(kept.since.monotonicMs, sentAtMs)
  })

  test('G3 T64 of a grant: when the last keep-alive was sent, however long the file took', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    const sentAtMs = rig.clock.monotonicMs()
    const keeping = session.keepAlive({ held: [], waiting: [] }, call())
    rig.clock.block(900)
    await keeping
    const result = await session.tryAcquire(request('x'), call())
    assert(result.kind === 'granted')
    assert.equal(result.grant.since.monotonicMs, sentAtMs)
  })
})

describe('time has passed without a call: no timer has run', () => {
  const leave = {
    'a release': (holder: FullSession, held: AcquireRequest) => holder.release(held, release, call()),
    'an abandon': (holder: FullSession, held: AcquireRequest) => holder.abandon(held, call()),
    'a close': (holder: FullSession) => holder.close(call()),
  }
  for (const [what, step] of Object.entries(leave))
    test(`G8 T20 the transaction of ${what} grants to the first that lives, and to no dead one`, async () => {
      await using rig = new SqliteRig()
      const client = rig.open()
      const holder = await rig.session(client, 60_000)
      const dying = await rig.session(client, 1_000)
      const living = await rig.session(client, 60_000)
      const [held, dead, next] = [request('x'), request('x'), request('x')]
      await holder.tryAcquire(held, call())
      const ended = watch(enqueued(dying, dead, call()))
      await rig.until('the first is queued', () => rig.rows().waiters === 1)
      const granted = watch(enqueued(living, next, call()))
      await rig.until('both are queued', () => rig.rows().waiters === 2)
      rig.clock.block(2_000)
      await step(holder, held)
      assert.deepEqual(
        rig.sql('SELECT attempt FROM holders').map(({ attempt }) => attempt),
        [next.attempt],
      )
      assert.deepEqual([ended.value?.kind, granted.value?.kind], ['session-gone', 'granted'])
    })

  test('T23 an abandon that comes after the time of its session does not take away the lock-delay', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    const asked = request('x', { lockDelayMs: 60_000 })
    await session.tryAcquire(asked, call())
    rig.clock.block(session.ttlMs)
    await session.abandon(asked, call())
    const late = await rig.session()
    assert.equal((await late.tryAcquire(request('x'), call())).kind, 'busy')
  })
})

test('G6 an abandon that comes after the end of its session leaves no mark behind', async () => {
  await using rig = new SqliteRig()
  const session = await rig.session()
  const asked = request('x')
  await session.tryAcquire(asked, call())
  await session.close(call())
  await session.abandon(asked, call())
  assert.deepEqual(rig.rows(), nothing)
})

describe('keep-alive', () => {
  test('10,000 leases cost one transaction and as many statements as one lease', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    const costWith = async (held: readonly AcquireRequest[]) => {
      const before = { ...client.statistics }
      const kept = await session.keepAlive({ held, waiting: [] }, call())
      assert(kept.kind === 'alive' && kept.lost.length === 0)
      return [
        client.statistics.transactions - before.transactions,
        client.statistics.statements - before.statements,
      ]
    }
    const held = [request('first')]
    await Promise.all(held.map((each) => session.tryAcquire(each, call())))
    const costOfOne = await costWith(held)
    const more = Array.from({ length: 9_999 }, (_, index) => request(`item ${index}`))
    await Promise.all(more.map((each) => session.tryAcquire(each, call())))
    assert.deepEqual(await costWith([...held, ...more]), costOfOne)
    assert.deepEqual(costOfOne, [1, 3], 'whose file it is, prolong, and what else is due')
  })

  test('T34 of 10,000 leases it names exactly those that are gone, each with its reason', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    const held = Array.from({ length: 10_000 }, (_, index) => request(`item ${index}`))
    await Promise.all(held.map((each) => session.tryAcquire(each, call())))
    rig.sql("DELETE FROM holders WHERE name IN ('item 17', 'item 4000')")
    await new Operator(client).force('item 9999')
    await (await rig.session()).tryAcquire(request('item 17'), call())
    const kept = await session.keepAlive({ held, waiting: [] }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual(kept.lost, [
      { attempt: held[17]?.attempt, reason: 'taken-over' },
      { attempt: held[4_000]?.attempt, reason: 'deleted' },
      { attempt: held[9_999]?.attempt, reason: 'force-released', detail: 'an operator said so' },
    ])
  })

  test('a keep-alive overtakes a backlog of requests, and does not take for lost what is still on its way', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session()
    const asked = Array.from({ length: 5_000 }, (_, index) => request(`item ${index}`))
    const ask = (each: (typeof asked)[number], index: number) =>
      index % 2 === 0 ? session.tryAcquire(each, call()) : enqueued(session, each, call())
    const taking = Promise.all(asked.map(ask))
    // Core does not list tries: they have no position.
    const waiting = asked.filter((_, index) => index % 2 === 1)
    const kept = await session.keepAlive({ held: [], waiting }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual(kept.lost, [])
    assert(Number(rig.rows().holders) < 2_500, 'most of them are still waiting')
    await taking
    const later = await session.keepAlive({ held: asked, waiting: [] }, call())
    assert(later.kind === 'alive' && later.lost.length === 0 && later.unlisted.length === 0)
  })

  test('T31 a session whose time is up is gone, although it was not removed yet', async () => {
    await using rig = new SqliteRig()
    const session = await rig.session(rig.open(), 1_000)
    const held = request('x')
    await session.tryAcquire(held, call())
    rig.clock.block(1_000)
    assert.equal(rig.rows().sessions, 1)
    assert.deepEqual(await session.keepAlive({ held: [held], waiting: [] }, call()), { kind: 'gone' })
    assert.deepEqual(rig.rows(), nothing)
  })

  test('T31 what belonged to an expired session stays gone when its id is opened again', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const asked = { id: 'the same', ttlMs: 1_000, holder: 'x' }
    const old = await client.openSession(asked, call())
    rig.clock.block(1_000)
    await client.openSession(asked, call())
    assert.equal((await old.tryAcquire(request('x'), call())).kind, 'session-gone')
    assert.deepEqual(await old.keepAlive({ held: [], waiting: [] }, call()), { kind: 'gone' })
  })
})

describe('the end of a client', () => {
  test('ends its waits, leaves its claims to their time, and no timer', async () => {
    await using rig = new SqliteRig()
    const [client, other] = [rig.open(), rig.open()]
    const session = await rig.session(client, 1_000)
    await session.tryAcquire(request('x'), call())
    const wait = watch(enqueued(session, request('x'), call()))
    const stranger = await rig.session(other, 60_000)
    await client[Symbol.asyncDispose]()
    await client[Symbol.asyncDispose]()
    await rig.clock.advance(0)
    assert(wait.state === 'rejected' && isHoldfastError(wait.error, 'CLOSED'))
    assert.equal(rig.clock.pendingTimers, 0)
    assert.equal((await stranger.tryAcquire(request('x'), call())).kind, 'busy')
    await rig.clock.advance(1_000)
    assert.equal((await stranger.tryAcquire(request('x'), call())).kind, 'granted')
  })
})

test('T12 an attempt that is asked again gets the same grant, with what it was left then', async () => {
  await using rig = new SqliteRig()
  const [first, second] = [await rig.session(), await rig.session()]
  const held = request('x')
  await first.tryAcquire(held, call())
  await first.setData(held, 'left by the first', call())
  await first.release(held, release, call())
  const asked = request('x')
  const granted = await second.tryAcquire(asked, call())
  assert(granted.kind === 'granted' && granted.grant.previousData === 'left by the first')
  await second.setData(asked, 'left by the second', call())
  assert.deepEqual(await second.tryAcquire(asked, call()), granted)
  assert.deepEqual(await enqueued(second, asked, call()), granted)
})

describe('resizing', () => {
  test('a waiter keeps its position, also when it asks again with the capacity that it knows', async () => {
    await using rig = new SqliteRig()
    const [holder, waiter] = [await rig.session(), await rig.session()]
    const [held, asked] = [permits('pool', 2, 3), permits('pool', 2, 3)]
    await holder.tryAcquire(held, call())
    const wait = watch(enqueued(waiter, asked, call()))
    await rig.clock.settle()
    assert.equal(await new Operator(rig.open()).resize('pool', 2), 'resized')
    const again = watch(enqueued(waiter, asked, call()))
    assert.equal((await waiter.tryAcquire(asked, call())).kind, 'busy')
    await holder.release(held, release, call())
    await rig.until('both are answered', () => wait.state === 'fulfilled' && again.state === 'fulfilled')
  })

  test('a larger capacity serves the line, in whatever client it waits', async () => {
    await using rig = new SqliteRig()
    const [holder, waiter] = [await rig.session(), await rig.session()]
    await holder.tryAcquire(permits('pool', 3, 3), call())
    const wait = watch(enqueued(waiter, permits('pool', 2, 3), call()))
    await rig.clock.settle()
    const operator = rig.open()
    assert.equal(await new Operator(operator).resize('pool', 2), 'in-use')
    assert.equal(await new Operator(operator).resize('pool', 5), 'resized')
    await rig.until('the waiter is granted', () => wait.state === 'fulfilled')
    await assert.rejects(holder.tryAcquire(permits('pool', 1, 3), call()), (error) =>
      isHoldfastError(error, 'CAPACITY_MISMATCH'),
    )
  })
})

test('the factory gives a plain backend, with what it says about itself', async () => {
  await using rig = new SqliteRig()
  const { path, clock, machine } = rig
  const backend = sqlite({ path, clock, machine, issuer: 'mine', epoch: 7, pollMs: 50 })
  const { name, scope, fencing, issuer, epoch } = backend.info
  const expirySlackMs = backend.info.expirySlackMs(1_000)
  assert.deepEqual(
    { name, scope, fencing, issuer, epoch, expirySlackMs },
    { name: 'sqlite', scope: 'machine', fencing: 'fenced', issuer: 'mine', epoch: 7, expirySlackMs: 200 },
  )
  await backend[Symbol.asyncDispose]()
})
