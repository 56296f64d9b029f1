import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { SqliteRig, watch } from '../../../../test/sqlite/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { isHoldfastError } from '../../../base/errors.ts'
import { systemRandom } from '../../../base/ids.ts'
import { Operator } from '../../../testing/conformance/operator.ts'
import { call, request, shared } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import { FilePoll } from './poll.ts'
import type { Statements } from './statements.ts'
import { noStatistics } from './statistics.ts'
import { SqliteWaitingRoom } from './waiting-room.ts'

const release = { keepForMs: 0 }

describe('waiters on sqlite', () => {
  test('T28 1,000 waiters cost as many statements per poll as one', async () => {
    const costOfPolls = async (waiters: number) => {
      await using rig = new SqliteRig()
      const [holding, waiting] = [rig.open(), rig.open()]
      const [holder, waiter] = [await rig.session(holding, 600_000), await rig.session(waiting, 600_000)]
      await holder.tryAcquire(request('x'), call())
      const waits = Array.from({ length: waiters }, () => watch(enqueued(waiter, request('x'), call())))
      await rig.clock.advance(1_000)
      const before = { ...waiting.statistics }
      for (let round = 0; round < 10; round++) {
        // Another process writes, so that there is something to look at.
        await holder.setData({ name: 'y', attempt: 'z' }, 'nothing', call())
        await holder.tryAcquire(request(`other ${round}`), call())
        await rig.clock.advance(1_000)
      }
      assert(waits.every((wait) => wait.state === 'pending'))
      const polls = waiting.statistics.polls - before.polls
      assert(polls >= 20 && polls <= 50, `one timer for all: ${polls} polls in 10 s`)
      return (waiting.statistics.statements - before.statements) / polls
    }
    const [one, thousand] = [await costOfPolls(1), await costOfPolls(1_000)]
    assert(one <= 4 && thousand <= 4, `${one} and ${thousand} statements per poll`)
  })

  test('a poll of a file that was not written to asks nothing', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client, 600_000)
    await session.tryAcquire(request('x'), call())
    watch(enqueued(session, request('x'), call()))
    await rig.clock.advance(2_000)
    const before = { ...client.statistics }
    await rig.clock.advance(10_000)
    const polls = client.statistics.polls - before.polls
    assert.equal((client.statistics.statements - before.statements) / polls, 3)
  })

  test('G10 the first waiter takes over when the holder expires, at that very moment', async () => {
    await using rig = new SqliteRig()
    const [holder, waiter] = [await rig.session(undefined, 1_000), await rig.session(undefined, 600_000)]
    await holder.tryAcquire(request('x'), call())
    const wait = watch(enqueued(waiter, request('x'), call()))
    await rig.clock.advance(999)
    assert.equal(wait.state, 'pending')
    await rig.clock.advance(1 + 2)
    assert.equal(wait.state, 'fulfilled')
  })

  test('G10 T20 dead waiters are passed over, all together, when they expire', async () => {
    await using rig = new SqliteRig()
    const [holder, living] = [await rig.session(undefined, 600_000), await rig.session(undefined, 600_000)]
    const held = request('x')
    await holder.tryAcquire(held, call())
    for (let dead = 0; dead < 20; dead++) {
      const client = rig.open()
      watch(enqueued(await rig.session(client, 1_000), request('x'), call()))
      await rig.clock.settle()
      await client[Symbol.asyncDispose]()
    }
    const wait = watch(enqueued(living, request('x'), call()))
    await rig.clock.settle()
    await holder.release(held, release, call())
    await rig.clock.advance(1_000 + (rig.clients[0]?.info.expirySlackMs(1_000) ?? 0))
    assert.equal(wait.state, 'fulfilled')
    assert.deepEqual(rig.rows(), { sessions: 2, holders: 1, waiters: 0, marks: 0, names: 0 })
  })

  test('G10 when a semaphore has room for the second but the first waiter dies, the second is served', async () => {
    await using rig = new SqliteRig()
    const [holder, dying, living] = [
      await rig.session(undefined, 600_000),
      await rig.session(undefined, 1_000),
      await rig.session(undefined, 600_000),
    ]
    const five = (weight: number) => request('pool', { mode: 'permits', weight, capacity: 5 })
    await holder.tryAcquire(five(3), call())
    const first = watch(enqueued(dying, five(4), call()))
    const second = watch(enqueued(living, five(2), call()))
    await rig.clock.advance(990)
    assert.equal(second.state, 'pending', 'no waiter overtakes')
    await rig.clock.advance(20)
    assert.deepEqual([first.state, first.value], ['fulfilled', { kind: 'session-gone' }])
    assert.equal(second.state, 'fulfilled')
  })

  test('T65 a grant that was handed over counts from the last keep-alive of the waiter, not from the push', async () => {
    await using rig = new SqliteRig()
    const [holder, waiter] = [await rig.session(undefined, 60_000), await rig.session(undefined, 10_000)]
    const [held, asked] = [request('x'), request('x')]
    await holder.tryAcquire(held, call())
    const wait = watch(enqueued(waiter, asked, call()))
    await rig.clock.advance(4_000)
    const kept = await waiter.keepAlive({ held: [], waiting: [asked] }, call())
    await rig.clock.advance(3_000)
    await holder.release(held, release, call())
    await rig.until('granted', () => wait.state === 'fulfilled')
    assert(kept.kind === 'alive' && wait.value?.kind === 'granted')
    assert.deepEqual(wait.value.grant.since, kept.since)
  })

  test('a keep-alive brings a grant whose wake-up got lost, and ends the wait too', async () => {
    await using rig = new SqliteRig()
    const elsewhere = rig.open({}, { socketFolder: join(rig.folder, 'elsewhere') })
    const [holder, waiter] = [await rig.session(elsewhere), await rig.session()]
    const [held, asked] = [request('x'), request('x')]
    await holder.tryAcquire(held, call())
    const wait = watch(enqueued(waiter, asked, call()))
    await rig.clock.settle()
    await holder.release(held, release, call())
    const kept = await waiter.keepAlive({ held: [], waiting: [asked] }, call())
    assert(kept.kind === 'alive')
    assert.deepEqual(kept.lost, [])
    assert.equal(kept.granted[0]?.attempt, asked.attempt)
    await rig.clock.settle()
    assert(wait.value?.kind === 'granted')
    assert.equal(wait.value.grant.token, kept.granted[0]?.token)
  })

  test('who is released by force before hearing of the grant does not get it', async () => {
    await using rig = new SqliteRig()
    const elsewhere = rig.open({}, { socketFolder: join(rig.folder, 'elsewhere') })
    const [holder, waiter] = [await rig.session(elsewhere), await rig.session()]
    const held = request('x')
    await holder.tryAcquire(held, call())
    const wait = watch(enqueued(waiter, request('x'), call()))
    await rig.clock.settle()
    await holder.release(held, release, call())
    assert.equal(await new Operator(elsewhere).force('x'), 1)
    await rig.clock.advance(500)
    assert(wait.state === 'rejected' && isHoldfastError(wait.error, 'BACKEND_UNAVAILABLE'))
    assert.equal(wait.error.outcome, 'not-applied')
  })

  test('T73 an abandon through another client of the session ends the wait here', async () => {
    await using rig = new SqliteRig()
    const [holder, waiter] = [await rig.session(), await rig.session()]
    await holder.tryAcquire(request('x'), call())
    const asked = request('x')
    const wait = watch(enqueued(waiter, asked, call()))
    await rig.clock.settle()
    const twin = await rig.open().attachSession(waiter.handle, call())
    await twin?.abandon(asked, call())
    await rig.clock.advance(500)
    assert(wait.state === 'rejected' && isHoldfastError(wait.error, 'BACKEND_UNAVAILABLE'))
    assert.deepEqual([rig.rows().waiters, rig.rows().marks], [0, 1])
  })

  test('an abandon in another session with the same attempt disturbs no waiter', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const [holder, waiter] = [await rig.session(client), await rig.session(client)]
    await holder.tryAcquire(request('x'), call())
    const asked = request('x')
    const wait = watch(enqueued(waiter, asked, call()))
    await holder.abandon(asked, call())
    await rig.clock.settle()
    assert.equal(wait.state, 'pending')
  })

  test('readers that stand next to each other are all served by one release, in several clients', async () => {
    await using rig = new SqliteRig()
    const writer = await rig.session()
    const held = request('x')
    await writer.tryAcquire(held, call())
    const readers = [await rig.session(), await rig.session(), await rig.session()]
    const waits: ReturnType<typeof watch>[] = []
    for (const reader of [...readers, ...readers]) {
      waits.push(watch(enqueued(reader, shared('x'), call())))
      await rig.clock.settle()
    }
    const behind = watch(enqueued(writer, request('x'), call()))
    await rig.clock.settle()
    await writer.release(held, release, call())
    await rig.until('all readers read', () => waits.every((wait) => wait.state === 'fulfilled'))
    assert.equal(behind.state, 'pending')
  })

  test('nobody polls when nobody waits, and nothing is left armed', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client)
    const held = request('x')
    await session.tryAcquire(held, call())
    const wait = watch(enqueued(session, request('x'), call()))
    await rig.clock.advance(0)
    assert.equal(rig.clock.pendingTimers, 1)
    await session.release(held, release, call())
    assert.equal(wait.state, 'fulfilled')
    await rig.clock.advance(0)
    assert.equal(rig.clock.pendingTimers, 0)
  })

  test('a file that cannot be written for a while is not hammered, and the wait goes on', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const [holder, waiter] = [await rig.session(undefined, 1_000), await rig.session(client, 600_000)]
    await holder.tryAcquire(request('x'), call())
    const wait = watch(enqueued(waiter, request('x'), call()))
    await rig.clock.settle()
    rig.sql(
      "CREATE TRIGGER fire BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END",
    )
    await rig.clock.advance(6_000)
    assert.equal(wait.state, 'pending')
    assert(client.statistics.polls <= 30, `${client.statistics.polls} polls in 6 s`)
    rig.sql('DROP TRIGGER fire')
    await rig.clock.advance(500)
    assert.equal(wait.state, 'fulfilled')
  })

  test('a look that failed has seen nothing: the next one looks again, although no process has written since', async () => {
    const clock = createFakeClock()
    let readable = false
    const sql = {
      dataVersion: { first: () => ({ data_version: 7 }) },
      fileState: { first: () => ({ due: Infinity }) },
      outcomes: {
        all() {
          if (!readable) throw new Error('busy')
          return [{ index: 0, alive: 1, token: 5, data: null, mark: null }]
        },
      },
    } as unknown as Statements
    const catchUp = async () => {}
    const common = {
      clock,
      random: systemRandom,
      statistics: noStatistics(),
      pollMs: 100,
    }
    const poll = new FilePoll({ ...common, sql }, catchUp)
    const room = new SqliteWaitingRoom({ sql, clock, namespace: 'default' }, poll)
    let granted: bigint | undefined
    const granting = (news: { readonly token: bigint }) => {
      granted = news.token
      return { kind: 'session-gone' as const }
    }
    const attempt = callWith(undefined, { answer: () => {}, fail: () => {}, queued: () => {} })
    const waiter = { request: request('x'), session: 1, attempt, granted: granting }
    room.ask(waiter)
    room.enter(waiter)
    room.armForNewcomers()
    await clock.advance(250)
    assert.equal(granted, undefined)
    readable = true
    await clock.advance(250)
    assert.equal(granted, 5n)
  })
})
