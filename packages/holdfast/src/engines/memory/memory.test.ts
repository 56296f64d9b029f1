import assert from 'node:assert/strict'
import { describe, test, vi } from 'vitest'
import { namingGrants } from '../../../test/naming-grants.ts'
import { callWith } from '../../base/aborting.ts'
import { isHoldfastError } from '../../base/errors.ts'
import { newAttempt, publicIdOf, systemRandom } from '../../base/ids.ts'
import { listAll } from '../../kit/backend-kit.ts'
import { type AcquireRequest, type Backend, LOCK_CAPACITY, type WatchEvent } from '../../spi.ts'
import { Operator } from '../../testing/conformance/operator.ts'
import { enqueued } from '../../testing/enqueued.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { Deadlines } from './deadlines.ts'
import { MemoryEngine, memory, sharedMemoryEngine } from './index.ts'
import { Queue } from './queue.ts'

const call = callWith()
const nothing = { sessions: 0, names: 0, waiters: 0, deadlines: 0 }

async function open(backend: Backend<'fenced'>, ttlMs = 10_000) {
  return namingGrants(await backend.openSession({ id: systemRandom.id(), ttlMs, holder: 'tester' }, call))
}

function exclusive(name: string, options: Partial<AcquireRequest> = {}): AcquireRequest {
  const attempt = newAttempt(systemRandom)
  return {
    name,
    attempt,
    mode: 'exclusive',
    weight: LOCK_CAPACITY,
    capacity: LOCK_CAPACITY,
    lockDelayMs: 0,
    ...options,
  }
}

async function setUp() {
  const clock = createFakeClock()
  const engine = new MemoryEngine({ clock })
  const backend = memory({ engine })
  return { clock, engine, backend, session: await open(backend) }
}

describe('the memory engine', () => {
  test('two backends on one engine exclude each other, and two engines do not', async () => {
    const engine = new MemoryEngine()
    const one = await open(memory({ engine }))
    const other = await open(memory({ engine }))
    const stranger = await open(memory())
    assert.equal((await one.tryAcquire(exclusive('n'), call)).kind, 'granted')
    assert.equal((await other.tryAcquire(exclusive('n'), call)).kind, 'busy')
    assert.equal((await stranger.tryAcquire(exclusive('n'), call)).kind, 'granted')
  })

  test('namespaces are separate worlds that share one count of tokens', async () => {
    const engine = new MemoryEngine()
    const red = await open(memory({ engine, namespace: 'red' }))
    const blue = await open(memory({ engine, namespace: 'blue' }))
    const first = await red.tryAcquire(exclusive('n'), call)
    const second = await blue.tryAcquire(exclusive('n'), call)
    assert.ok(first.kind === 'granted' && second.kind === 'granted')
    assert.ok(second.grant.token > first.grant.token)
    assert.equal(await memory({ engine, namespace: 'blue' }).attachSession(red.handle, call), null)
    assert.deepEqual(await listAll(memory({ engine, namespace: 'green' }), '', call), [])
  })

  test('the default issuer is different for every engine and namespace', () => {
    const engine = new MemoryEngine()
    const issuers = [memory(), memory(), memory({ engine }), memory({ engine, namespace: 'x' })].map(
      (b) => b.info.issuer,
    )
    assert.equal(new Set(issuers).size, 4)
    assert.equal(memory({ engine }).info.issuer, issuers[2])
    assert.equal(memory({ issuer: 'mine', epoch: 7 }).info.issuer, 'mine')
  })

  test('nonsense options are refused', () => {
    for (const options of [
      { epoch: 2_048 },
      { epoch: 0.5 },
      { namespace: '' },
      { engine: {} },
      { nameSpace: 'x' },
    ])
      assert.throws(
        () => memory(options as object),
        (error) => isHoldfastError(error, 'INVALID_ARGUMENT'),
      )
  })

  test('nothing is left behind when everything was given back, in any way', async () => {
    const { clock, engine, backend, session } = await setUp()
    const held = exclusive('held')
    await session.tryAcquire(held, call)
    const waiting = enqueued(session, exclusive('held'), call)
    const dying = await open(backend, 1_000)
    await dying.tryAcquire(exclusive('dying', { lockDelayMs: 500 }), call)
    await session.tryAcquire(exclusive('forced'), call)
    const kept = exclusive('kept')
    await session.tryAcquire(kept, call)
    await session.setData(kept, 'for the next', call)
    await session.release(kept, { keepForMs: 700 }, call)
    assert.equal(await new Operator(backend).force('forced'), 1)
    await session.release(held, { keepForMs: 0 }, call)
    assert.equal((await waiting)?.kind, 'granted')
    await clock.advance(1_499)
    assert.deepEqual(
      (await listAll(backend, '', call)).map((state) => [state.name, state.closedForMs]),
      [
        ['dying', 1],
        ['held', 0],
        ['kept', 0],
      ],
    )
    await session.close(call)
    await session.close(call)
    await clock.advance(1)
    assert.equal(await new Operator(backend).forget('kept'), 'forgotten')
    assert.deepEqual(engine.stats(), nothing)
    assert.equal(clock.pendingTimers, 0)
  })

  test('a session and its lock-delay that are both over leave nothing, although no call came in between', async () => {
    const { clock, engine, backend, session } = await setUp()
    const dying = await open(backend, 1_000)
    await dying.tryAcquire(exclusive('dying', { lockDelayMs: 500 }), call)
    await session.close(call)
    await clock.advance(1_500)
    assert.deepEqual(engine.stats(), nothing)
  })

  test('G10 the head of the line is served by the engine itself when the holder dies', async () => {
    const { clock, engine, backend, session } = await setUp()
    const dying = await open(backend, 1_000)
    await dying.tryAcquire(exclusive('n', { lockDelayMs: 250 }), call)
    let granted = false
    void enqueued(session, exclusive('n'), call).then((result) => (granted = result.kind === 'granted'))
    await clock.advance(1_249)
    assert.equal(granted, false)
    await clock.advance(1)
    assert.equal(granted, true)
    assert.equal(engine.stats().waiters, 0)
    assert.equal(clock.pendingTimers, 0)
  })

  test('T20 a waiter that died is never granted anything, even if no call came in between', async () => {
    const { clock, backend, session } = await setUp()
    const holder = await open(backend, 1_000)
    const deadWaiter = await open(backend, 1_500)
    await holder.tryAcquire(exclusive('n'), call)
    const dead = enqueued(deadWaiter, exclusive('n', { lockDelayMs: 60_000 }), call)
    const alive = enqueued(session, exclusive('n'), call)
    clock.block(2_000)
    await clock.advance(0)
    assert.equal((await dead)?.kind, 'session-gone')
    assert.equal((await alive)?.kind, 'granted')
  })

  test('T65 a handed-over grant counts from the last keep-alive of its own session', async () => {
    const { clock, backend, session } = await setUp()
    const other = await open(backend)
    const held = exclusive('n')
    await other.tryAcquire(held, call)
    const waiting = enqueued(session, exclusive('n'), call)
    await clock.advance(3_000)
    const alive = await session.keepAlive({ held: [], waiting: [] }, call)
    await clock.advance(2_000)
    await other.release(held, { keepForMs: 0 }, call)
    const result = await waiting
    assert.ok(alive.kind === 'alive' && result?.kind === 'granted')
    assert.deepEqual(result.grant.since, alive.since)
    assert.equal(clock.monotonicMs() - result.grant.since.monotonicMs, 2_000)
  })

  test('T64 an attached session is believed from when it was last prolonged, on the clock of its client', async () => {
    const { clock, engine, session } = await setUp()
    await clock.advance(4_000)
    const clientClock = createFakeClock({ monotonicMs: 5, wallMs: 1_000_000 })
    const attached = await memory({ engine, clock: clientClock }).attachSession(session.handle, call)
    assert.deepEqual(attached?.since, { monotonicMs: 5 - 4_000, wallMs: 1_000_000 - 4_000 })
    await clock.advance(6_000)
    assert.equal(await memory({ engine }).attachSession(session.handle, call), null)
  })

  test('a wait that is cancelled leaves its position, and asked again gets the same one', async () => {
    const { engine, backend, session } = await setUp()
    const held = exclusive('n')
    await session.tryAcquire(held, call)
    const waiting = exclusive('n')
    const abort = new AbortController()
    const first = enqueued(session, waiting, callWith(abort.signal))
    const behind = enqueued(session, exclusive('n'), call)
    abort.abort()
    await assert.rejects(async () => first, { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
    assert.equal(engine.stats().waiters, 2)
    const again = enqueued(session, waiting, call)
    await session.release(held, { keepForMs: 0 }, call)
    assert.equal((await again)?.kind, 'granted')
    await backend[Symbol.asyncDispose]()
    await assert.rejects(async () => behind, { code: 'CLOSED' })
    await assert.rejects(backend.inspect('n', call), { code: 'CLOSED' })
  })

  test('T34 a deleted name is told as lost at the next keep-alive, and goes to the next waiter', async () => {
    const { engine, backend, session } = await setUp()
    const other = await open(backend)
    const held = exclusive('n')
    await session.tryAcquire(held, call)
    const waiting = enqueued(other, exclusive('n'), call)
    const alone = exclusive('alone')
    await session.tryAcquire(alone, call)
    engine.deleteName('default', 'n')
    engine.deleteName('default', 'alone')
    assert.equal((await waiting)?.kind, 'granted')
    const alive = await session.keepAlive({ held: [held, alone], waiting: [] }, call)
    assert.deepEqual(alive.kind === 'alive' && alive.lost, [
      { attempt: held.attempt, reason: 'taken-over' },
      { attempt: alone.attempt, reason: 'deleted' },
    ])
  })

  test('memory:name in a configuration means one engine per name', () => {
    assert.equal(sharedMemoryEngine('a'), sharedMemoryEngine('a'))
    assert.notEqual(sharedMemoryEngine('a'), sharedMemoryEngine('b'))
  })

  test('T28 with 10,000 waiting a release wakes one, and costs what it costs with 10', async () => {
    const visitsOfReleases = async (waiters: number) => {
      const { session } = await setUp()
      let holding = exclusive('n')
      await session.tryAcquire(holding, call)
      let woken = 0
      const requests = Array.from({ length: waiters }, () => exclusive('n'))
      for (const request of requests) void enqueued(session, request, callWith()).then(() => woken++)
      const visits = countVisits()
      const next = requests.slice(0, 10)
      for (const request of next) {
        await session.release(holding, { keepForMs: 0 }, call)
        await new Promise((resolve) => setImmediate(resolve))
        holding = request
      }
      assert.equal(woken, next.length)
      return visits.stop()
    }
    const few = await visitsOfReleases(10)
    assert.ok(few >= 10, 'a waiter is visited at every release')
    assert.equal(await visitsOfReleases(10_000), few)
  })
})

/** How often a waiter is looked at, or leaves the queue. */
function countVisits(): { stop(): number } {
  let visits = 0
  const iterate = Queue.prototype[Symbol.iterator]
  const spies = [
    vi.spyOn(Queue.prototype, 'first', 'get'),
    vi.spyOn(Queue.prototype, 'leave'),
    vi.spyOn(Queue.prototype, Symbol.iterator).mockImplementation(function* (this: Queue<never>) {
      for (const member of iterate.call(this)) {
        visits++
        yield member
      }
    }),
  ]
  return {
    stop() {
      for (const spy of spies) {
        visits += spy.mock.calls.length
        spy.mockRestore()
      }
      return visits
    },
  }
}

describe('watching the memory engine', () => {
  const take = async (events: AsyncIterator<WatchEvent>, count: number) => {
    const taken: WatchEvent[] = []
    while (taken.length < count) {
      const next = await events.next()
      if (next.done) break
      taken.push(next.value)
    }
    return taken
  }
  const iterate = (backend: Backend<'fenced'>, prefix = '', cursor?: string) => {
    const events = backend.watch?.(prefix, cursor === undefined ? {} : { cursor }, callWith())
    assert.ok(events !== undefined)
    return events[Symbol.asyncIterator]()
  }
  const kinds = (events: readonly WatchEvent[]) =>
    events.map((event) => (event.kind === 'gap' ? 'gap' : `${event.kind} ${event.name}`))

  test('tells what happens from now on, of its namespace and prefix', async () => {
    const { clock, engine, backend, session } = await setUp()
    await session.tryAcquire(exclusive('a/0'), call)
    const events = iterate(backend, 'a/')
    const elsewhere = await open(memory({ engine, namespace: 'elsewhere' }))
    await elsewhere.tryAcquire(exclusive('a/elsewhere'), call)
    const dying = await open(backend, 1_000)
    const first = exclusive('a/1')
    await dying.tryAcquire(first, call)
    await session.tryAcquire(exclusive('b'), call)
    const second = exclusive('a/1')
    void enqueued(session, second, call)
    const third = exclusive('a/1')
    enqueued(session, third, call).catch(() => {})
    await session.abandon(third, call)
    const seen = take(events, 6)
    await clock.advance(1_000)
    assert.deepEqual(kinds(await seen), [
      'acquired a/1',
      'waiting a/1',
      'waiting a/1',
      'gave-up a/1',
      'expired a/1',
      'acquired a/1',
    ])
    await new Operator(backend).force('a/1')
    const [last] = await take(events, 1)
    assert.ok(last?.kind === 'force-released')
    assert.equal(last.id, publicIdOf(second.attempt))
    await events.return?.()
    await session.close(call)
    await elsewhere.close(call)
    assert.equal(clock.pendingTimers, 0)
  })

  test('expiry is told when it happens, also when there is no waiter for the name', async () => {
    const { clock, backend, session } = await setUp()
    const events = iterate(backend)
    const seen = take(events, 2)
    await session.tryAcquire(exclusive('n'), call)
    await clock.advance(10_000)
    assert.deepEqual(kinds(await seen), ['acquired n', 'expired n'])
  })

  test('goes on after a cursor, without a gap', async () => {
    const { backend, session } = await setUp()
    const events = iterate(backend)
    for (const name of ['a', 'b', 'c']) await session.tryAcquire(exclusive(name), call)
    const [first] = await take(events, 1)
    assert.deepEqual(kinds(await take(iterate(backend, '', first?.cursor), 2)), ['acquired b', 'acquired c'])
  })

  test('a cursor of another engine, or nonsense, starts with a gap and the current holders', async () => {
    const { backend, session, engine } = await setUp()
    for (const name of ['a', 'b']) await session.tryAcquire(exclusive(name), call)
    for (const cursor of ['someone-else:1', '', `${engine.id}:99`, `${engine.id}:-1`, 'x'.repeat(1_000)]) {
      const seen = await take(iterate(backend, '', cursor), 3)
      assert.deepEqual(kinds(seen), ['gap', 'acquired a', 'acquired b'])
      // Who stopped in the middle of the picture gets all of it again; who saw its end goes on from there.
      assert.deepEqual(kinds(await take(iterate(backend, '', seen[1]?.cursor), 3)), [
        'gap',
        'acquired a',
        'acquired b',
      ])
      const goOn = take(iterate(backend, '', seen[2]?.cursor), 1)
      const request = exclusive('c')
      await session.tryAcquire(request, call)
      assert.deepEqual(kinds(await goOn), ['acquired c'])
      await session.release(request, { keepForMs: 0 }, call)
    }
  })

  test('who reads too slowly gets a gap instead of silence', async () => {
    const { backend, session } = await setUp()
    const events = iterate(backend)
    await session.tryAcquire(exclusive('stays'), call)
    const [first] = await take(events, 1)
    for (let round = 0; round < 5_001; round++) {
      const request = exclusive('passes')
      await session.tryAcquire(request, call)
      await session.release(request, { keepForMs: 0 }, call)
    }
    assert.deepEqual(kinds(await take(events, 2)), ['gap', 'acquired stays'])
    assert.deepEqual(kinds(await take(iterate(backend, '', first?.cursor), 2)), ['gap', 'acquired stays'])
  })

  test('ends with its signal, and throws when the backend is closed', async () => {
    const { backend } = await setUp()
    const abort = new AbortController()
    const watched = backend.watch?.('', {}, callWith(abort.signal))[Symbol.asyncIterator]()
    const ended = watched?.next()
    abort.abort()
    assert.equal((await ended)?.done, true)
    const closed = iterate(backend).next()
    await backend[Symbol.asyncDispose]()
    await assert.rejects(closed, { code: 'CLOSED' })
  })
})

test('deadlines come in their order, whatever was moved or taken back', () => {
  const deadlines = new Deadlines<number>()
  const model = new Map<number, number>()
  let seed = 42
  const random = (below: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31
    return seed % below
  }
  for (let step = 0; step < 5_000; step++) {
    const owner = random(200)
    if (random(3) === 0) {
      deadlines.delete(owner)
      model.delete(owner)
    } else {
      const dueMs = random(1_000)
      deadlines.set(owner, dueMs)
      model.set(owner, dueMs)
    }
    assert.equal(deadlines.size, model.size)
    assert.ok(deadlines.nextMs <= Math.min(...model.values()), 'nothing falls due unnoticed')
    if (step % 100 > 0) continue
    const nowMs = random(1_000)
    const due = [...model].filter(([, dueMs]) => dueMs <= nowMs).sort(([, a], [, b]) => a - b)
    assert.deepEqual(
      deadlines.takeDue(nowMs).map((each) => model.get(each)),
      due.map(([, dueMs]) => dueMs),
    )
    for (const [each] of due) model.delete(each)
    assert.equal(deadlines.nextMs, Math.min(...model.values()))
  }
})
