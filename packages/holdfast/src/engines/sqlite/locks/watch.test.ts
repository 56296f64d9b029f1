import assert from 'node:assert/strict'
import { describe, onTestFinished, test } from 'vitest'
import { SqliteRig, watch } from '../../../../test/sqlite/rig.ts'
import { callWith } from '../../../base/aborting.ts'
import { publicIdOf } from '../../../base/ids.ts'
import { KEPT_EVENTS, WATCHED_FOR_MS } from '../../../kit/follow-log.ts'
import type { WatchEvent } from '../../../spi.ts'
import { call, request } from '../../../testing/conformance/requests.ts'
import { enqueued } from '../../../testing/enqueued.ts'
import { createFakeClock } from '../../../testing/fake-clock.ts'
import type { SqliteBackend } from './backend.ts'

const release = { keepForMs: 0 }

/** Reads events in the background, until it is told to stop. */
async function watching(rig: SqliteRig, client: SqliteBackend, prefix = '', cursor?: string) {
  const events: WatchEvent[] = []
  const controller = new AbortController()
  onTestFinished(() => controller.abort())
  const options = cursor === undefined ? {} : { cursor }
  const reading = (async () => {
    for await (const event of client.watch(prefix, options, callWith(controller.signal))) events.push(event)
  })()
  const ended = watch(reading)
  await rig.clock.settle()
  return {
    events,
    ended,
    story: () => events.map((event) => (event.kind === 'gap' ? 'gap' : `${event.kind} ${event.name}`)),
    cursor: () => events.at(-1)?.cursor ?? '',
    async stop() {
      controller.abort()
      await reading
    },
  }
}

function logged(rig: SqliteRig): number {
  return Number(rig.sql('SELECT count(*) AS n FROM events')[0]?.n)
}

describe('what watching costs', () => {
  async function costOfPair(rig: SqliteRig, client: SqliteBackend): Promise<[number, number]> {
    const session = await rig.session(client)
    // The first one reserves tokens.
    await session.tryAcquire(request(rig.id()), call())
    const before = client.statistics.statements
    const held = request('x')
    await session.tryAcquire(held, call())
    const between = client.statistics.statements
    await session.release(held, release, call())
    return [between - before, client.statistics.statements - between]
  }

  test('T82 without a watcher an acquire and a release cost the statements of the lock alone, and log nothing', async () => {
    await using rig = new SqliteRig()
    assert.deepEqual(await costOfPair(rig, rig.open()), [3, 1])
    assert.equal(logged(rig), 0)
  })

  test('a minute after the last watcher has left it costs nothing again, and the log is empty', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const watcher = await watching(rig, rig.open())
    assert.deepEqual(await costOfPair(rig, client), [3, 1], 'the triggers write the events')
    assert.equal(logged(rig), 3)
    await watcher.stop()
    await rig.clock.advance(WATCHED_FOR_MS)
    await costOfPair(rig, client)
    assert.equal(logged(rig), 0)
    assert.deepEqual(await costOfPair(rig, client), [3, 1])
  })

  test('T82 the cost of a watch follows the changes, not the names in use', async () => {
    const costWith = async (names: number) => {
      await using rig = new SqliteRig()
      const [writing, reading] = [rig.open(), rig.open()]
      const session = await rig.session(writing, 600_000)
      const held = Array.from({ length: names }, (_, index) => request(`name ${index}`))
      await Promise.all(held.map((each) => session.tryAcquire(each, call())))
      const watcher = await watching(rig, reading)
      await rig.clock.advance(1_000)
      const before = { ...reading.statistics }
      for (let round = 0; round < 10; round++) {
        const passing = request('passing')
        await session.tryAcquire(passing, call())
        await session.release(passing, release, call())
        await rig.clock.advance(1_000)
      }
      assert.equal(watcher.events.length, 20)
      const polls = reading.statistics.polls - before.polls
      // Three for each poll, and one for each of those that find something new.
      const reads = reading.statistics.statements - before.statements - 3 * polls
      assert(reads <= 20, `${reads} reads of the log for 10 changes`)
      return reads
    }
    assert.equal(await costWith(10), await costWith(2_000))
  })

  test('one poll serves all watchers of a process, and no timer is left when they have gone', async () => {
    const pollsWith = async (count: number) => {
      await using rig = new SqliteRig()
      const client = rig.open()
      const watchers = []
      for (let each = 0; each < count; each++) watchers.push(await watching(rig, client))
      assert.equal(rig.clock.pendingTimers, 2, 'the poll, and what keeps the log open')
      await rig.clock.advance(10_000)
      await Promise.all(watchers.map((watcher) => watcher.stop()))
      assert.equal(rig.clock.pendingTimers, 0)
      return client.statistics.polls
    }
    const polls = await pollsWith(50)
    assert(polls >= 20 && polls <= 60, `${polls} polls in 10 s`)
  })

  test('a watcher whose call is cancelled while it reads nothing leaves no timer', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const controller = new AbortController()
    const events = client
      .watch('', { cursor: 'from nowhere' }, callWith(controller.signal))
      [Symbol.asyncIterator]()
    assert.equal((await events.next()).value?.kind, 'gap')
    assert.equal(rig.clock.pendingTimers, 2)
    controller.abort()
    assert.equal(rig.clock.pendingTimers, 0)
    assert.deepEqual(await events.next(), { done: true, value: undefined })
  })

  test('the end of a client ends its watches, also those that read nothing, and leaves no timer', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const watcher = await watching(rig, client)
    const idle = client.watch('', { cursor: 'from nowhere' }, call())[Symbol.asyncIterator]()
    await idle.next()
    await client[Symbol.asyncDispose]()
    await rig.clock.settle()
    assert.equal(watcher.ended.state, 'rejected')
    await assert.rejects(idle.next(), { code: 'CLOSED' })
    assert.equal(rig.clock.pendingTimers, 0)
  })
})

describe('a watch', () => {
  test('tells of each way in which a claim can end, in every client', async () => {
    await using rig = new SqliteRig()
    const [writing, reading] = [rig.open(), rig.open()]
    const watchers = [await watching(rig, writing), await watching(rig, reading)]
    const [ada, bob] = [await rig.session(writing, 60_000), await rig.session(writing, 1_000)]
    await bob.tryAcquire(request('expires', { owner: 'a' }), call())
    watch(enqueued(bob, request('expires', { owner: 'b' }), call()))
    const dropped = request('dropped')
    await ada.tryAcquire(dropped, call())
    await ada.abandon(dropped, call())
    await ada.tryAcquire(request('closes'), call())
    await rig.clock.advance(1_010)
    await ada.close(call())
    await rig.clock.advance(500)
    const expected = [
      'acquired expires a',
      'waiting expires b',
      'acquired dropped',
      'released dropped',
      'acquired closes',
      'expired expires a',
      'gave-up expires b',
      'released closes',
    ]
    for (const { events } of watchers)
      assert.deepEqual(
        events.map((event) =>
          'name' in event ? `${event.kind} ${event.name} ${event.owner ?? ''}`.trim() : 'gap',
        ),
        expected,
      )
  })

  test('goes on from a cursor without a gap while the file is watched, or nothing has happened since', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client, 600_000)
    const first = await watching(rig, client)
    const [x, y] = [request('x'), request('y')]
    await session.tryAcquire(x, call())
    await rig.clock.settle()
    await first.stop()
    await session.tryAcquire(y, call())
    const second = await watching(rig, client, '', first.cursor())
    assert.deepEqual(second.story(), ['acquired y'])
    await second.stop()
    await rig.clock.advance(2 * WATCHED_FOR_MS)
    const third = await watching(rig, client, '', second.cursor())
    await session.release(y, release, call())
    await rig.clock.settle()
    assert.deepEqual(third.story(), ['released y'])
    await third.stop()
    await rig.clock.advance(WATCHED_FOR_MS)
    await session.release(x, release, call())
    await session.tryAcquire(request('z'), call())
    const late = await watching(rig, client, '', third.cursor())
    assert.deepEqual(late.story(), ['gap', 'acquired z'])
  })

  test('goes on for longer than a watcher is remembered, because it prolongs', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const watcher = await watching(rig, client)
    await rig.clock.advance(5 * WATCHED_FOR_MS)
    const session = await rig.session()
    await session.tryAcquire(request('x'), call())
    await rig.clock.advance(500)
    assert.deepEqual(watcher.story(), ['acquired x'])
  })

  test('says that there is a gap after its process was stopped for too long, and goes on', async () => {
    await using rig = new SqliteRig()
    const watcher = await watching(rig, rig.open())
    const session = await rig.session(undefined, 600_000)
    const held = request('x')
    await session.tryAcquire(held, call())
    await rig.clock.advance(500)
    rig.clock.block(2 * WATCHED_FOR_MS)
    await session.release(held, release, call())
    await session.tryAcquire(request('y'), call())
    await rig.clock.advance(500)
    await session.tryAcquire(request('z'), call())
    await rig.clock.advance(500)
    assert.deepEqual(watcher.story(), ['acquired x', 'gap', 'acquired y', 'acquired z'])
  })

  test('keeps the last events only: an older cursor is a gap, and so is one of the last boot', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const first = await watching(rig, client)
    const session = await rig.session(client)
    const held = request('x')
    await session.tryAcquire(held, call())
    await rig.clock.settle()
    await first.stop()
    rig.sql(
      `WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
       INSERT INTO events SELECT n + 1, 'waiting', 'default', 'y', 'id', 'h', NULL, NULL FROM numbers`,
      KEPT_EVENTS - 1,
    )
    const justInTime = await watching(rig, client, '', first.cursor())
    assert.equal(justInTime.events.length, KEPT_EVENTS - 1)
    await justInTime.stop()
    await session.setData(held, 'one more', call())
    assert.equal(logged(rig), KEPT_EVENTS)
    const tooLate = await watching(rig, client, '', first.cursor())
    assert.deepEqual(tooLate.story(), ['gap', 'acquired x'])
    await rig.restart()
    assert.equal(logged(rig), KEPT_EVENTS)
    const afterwards = rig.open({ clock: createFakeClock() })
    assert.equal(logged(rig), 0)
    const restarted = await watching(rig, afterwards, '', tooLate.cursor())
    assert.deepEqual(restarted.story(), ['gap'])
  })

  test('a cursor of an earlier log is a gap, although the log of now has an event with that number', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client, 600_000)
    const first = await watching(rig, client)
    await session.tryAcquire(request('x'), call())
    await rig.clock.settle()
    await first.stop()
    await rig.clock.advance(WATCHED_FOR_MS)
    await session.tryAcquire(request('y'), call())
    const second = await watching(rig, client)
    await session.tryAcquire(request('z'), call())
    await rig.clock.settle()
    assert.deepEqual(second.story(), ['acquired z'])
    const third = await watching(rig, client, '', first.cursor())
    assert.deepEqual(third.story(), ['gap', 'acquired x', 'acquired y', 'acquired z'])
  })

  test('T109 shows current holders in full after a gap, each once, and goes on only from the end of the picture', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const session = await rig.session(client, 600_000)
    const asked = Array.from({ length: 1_500 }, (_, index) =>
      request(`item ${String(index).padStart(4, '0')}`),
    )
    await Promise.all(asked.map((each) => session.tryAcquire(each, call())))
    await session.tryAcquire(request('other'), call())
    const events = client.watch('item', { cursor: 'x' }, call())[Symbol.asyncIterator]()
    const seen: WatchEvent[] = []
    const read = async () => {
      const { value } = await events.next()
      assert(value !== undefined)
      seen.push(value)
    }
    await read()
    // On the second page, which has not been read yet: one comes, and one goes.
    await session.tryAcquire(request('item 1400b'), call())
    await session.release(asked[1_450] ?? request(''), release, call())
    for (let each = 0; each < 1_501; each++) await read()
    const shown = seen.slice(1, 1_500).map((event) => ('id' in event ? event.id : 'gap'))
    assert.deepEqual(
      shown,
      asked.filter((_, index) => index !== 1_450).map(({ attempt }) => publicIdOf(attempt)),
    )
    assert.deepEqual(
      seen.slice(1_500).map((event) => ('name' in event ? `${event.kind} ${event.name}` : 'gap')),
      ['acquired item 1400b', 'released item 1450'],
    )
    await events.return?.()
    const middle = await watching(rig, client, 'item', seen[700]?.cursor)
    assert.equal(middle.story()[0], 'gap')
    const end = await watching(rig, client, 'item', seen[1_499]?.cursor)
    assert.deepEqual(end.story(), ['acquired item 1400b', 'released item 1450'])
  })

  test('T79 an event of a transaction that was undone is not told', async () => {
    await using rig = new SqliteRig()
    const client = rig.open()
    const watcher = await watching(rig, client)
    const session = await rig.session(client)
    rig.sql("CREATE TRIGGER fire BEFORE UPDATE OF next_token ON meta BEGIN SELECT RAISE(ABORT, 'fire'); END")
    await assert.rejects(session.tryAcquire(request('x'), call()), { code: 'BACKEND_UNAVAILABLE' })
    rig.sql('DROP TRIGGER fire')
    await session.tryAcquire(request('y'), call())
    await rig.clock.settle()
    assert.deepEqual(watcher.story(), ['acquired y'])
  })
})
