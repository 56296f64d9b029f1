/**
 * Failures between two steps of a waiter, and why each is harmless.
 *
 *   between                  crash, expired lease      pause                    lost reply               another client
 *   call and join            nothing is there          as a late request        unknown: core abandons   one order for all keys
 *   join and watch           the session's end         the watch starts at      (not a request)          the watch starts at the
 *                            deletes the key           the view's version                                view's version (T19)
 *   watch and wake-up        the key goes, and the     a look costs nothing     a keep-alive looks       may cancel in the middle:
 *                            next waiter wakes                                  again                    only `confirm` decides (T92)
 *   wake-up and confirm      `confirm` finds no key    not sent if the session  a look finds the grant   older keys can only go, so
 *                                                      may be over (T17)                                 eligible stays eligible
 *   confirm and return       the key goes with the     core checks the time     a look finds the grant   an operator deletes the
 *                            session                   that is left (T6)        with the same token      key: the next keep-alive tells
 *   cancel and leave         the session's end         a granted key stays,     core abandons            a granted key stays: a
 *                            deletes the key           core abandons it                                  keep-alive may have told of it
 */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { peek } from '../../test/rig.ts'
import { SimulatedStore, type StoreBreak, type StoreKind } from '../../test/simulated-store.ts'
import { callWith } from '../base/aborting.ts'
import { instantOf } from '../base/clock.ts'
import { BackendUnavailableError, type CallOutcome, isHoldfastError } from '../base/errors.ts'
import { type AcquireRequest, LOCK_CAPACITY, type Mode } from '../spi.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { seededRandom } from '../testing/seeded-random.ts'
import { Lifetime } from './lifetime.ts'
import { isEligible, type QueueView, waitersBefore, watchedBy, weightInUse } from './ordered-store.ts'
import { PredecessorQueue } from './predecessor-queue.ts'

const TTL_MS = 9_000
type Asked = Partial<AcquireRequest>

function lock(mode: Mode, asked: Asked = {}): Asked {
  return { mode, weight: mode === 'exclusive' ? LOCK_CAPACITY : 1, capacity: LOCK_CAPACITY, ...asked }
}
const shared = lock('shared')
const permits = (weight: number, capacity: number): Asked => ({ mode: 'permits', weight, capacity })

class CountedLifetime extends Lifetime {
  tied = 0

  override onCut(...given: Parameters<Lifetime['onCut']>): () => void {
    this.tied++
    const untie = super.onCut(...given)
    return () => {
      this.tied--
      untie()
    }
  }
}

/** Sessions on one simulated engine. Attempts are named by the test: `a`, `b`, `c` join in this order. */
function createRig(kind: StoreKind = 'ranges', broken?: StoreBreak) {
  const clock = createFakeClock()
  const store = new SimulatedStore(kind, broken)
  const session = (id: string) => {
    let since = instantOf(clock)
    const engine = store.openQueue(id)
    const lifetime = new CountedLifetime('simulated', clock)
    const queue = new PredecessorQueue({
      lifetime,
      store: engine,
      clock,
      random: seededRandom(1),
      session: () => ({ since, ttlMs: TTL_MS }),
    })
    const waiting = new Map<string, AcquireRequest>()
    const request = (attempt: string, asked: Asked): AcquireRequest => {
      const made = { name: 'x', attempt, lockDelayMs: 0, ...lock('exclusive'), ...asked } as AcquireRequest
      waiting.set(attempt, made)
      return made
    }
    return {
      queue,
      lifetime,
      async enqueue(attempt: string, asked: Asked = {}) {
        const stop = new AbortController()
        const told = { queued: 0 }
        const call = callWith(stop.signal, { queued: () => void told.queued++ })
        const seen = peek(queue.enqueue(request(attempt, asked), call))
        await clock.settle()
        return { seen, stop, told }
      },
      async tryAcquire(attempt: string, asked: Asked = {}) {
        const result = await queue.tryAcquire(request(attempt, asked), callWith())
        return result.kind
      },
      /** As a backend does it: prolongs the session, then looks for the waiters. */
      async keepAlive() {
        if (!store.isOpen(id)) return queue.end()
        since = instantOf(clock)
        return await queue.check([...waiting.values()], callWith())
      },
    }
  }
  const release = async (attempt: string) => {
    assert(store.remove({ name: 'x', attempt }))
    await clock.settle()
  }
  return { clock, store, session, release, show: () => store.show('x') }
}

const isUnavailable = (error: unknown, outcome: CallOutcome) =>
  isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.outcome === outcome

function grantOf(seen: { readonly value?: { readonly kind: string } }) {
  const value = seen.value as Awaited<ReturnType<PredecessorQueue['enqueue']>> | undefined
  assert(value?.kind === 'granted', `it is ${value?.kind ?? 'pending'}`)
  return value.grant
}

describe('reading a queue', () => {
  const view = (own: number, capacity: number, older: string): QueueView => ({
    own: { key: 'own', order: 100n, weight: own, granted: false },
    older: older
      .split(' ')
      .filter((text) => text !== '')
      .map((text, at) => ({
        key: `k${at}`,
        order: BigInt(at),
        weight: Number.parseInt(text, 10),
        granted: text.endsWith('*'),
      })),
    capacity,
    capacityKey: 'capacity',
    version: 1n,
  })
  const all = LOCK_CAPACITY
  const cases: [what: string, Mode, QueueView, watched: string][] = [
    ['a free lock', 'exclusive', view(all, all, ''), 'eligible'],
    ['a writer behind writers', 'exclusive', view(all, all, `${all}* ${all} ${all}`), 'deleted k2'],
    ['a writer behind readers', 'exclusive', view(all, all, '1* 1* 1*'), 'deleted k2'],
    ['a reader behind readers', 'shared', view(1, all, '1* 1 1*'), 'eligible'],
    ['a reader behind a writer and a reader', 'shared', view(1, all, `1* ${all} ${all} 1`), 'deleted k2'],
    ['permits that fit', 'permits', view(2, 5, '1* 2'), 'eligible'],
    [
      'the first waiter for permits',
      'permits',
      view(2, 3, '1* 1* 1*'),
      'changed capacity, deleted k2, deleted k1',
    ],
    [
      'the first, behind one that is about to be granted',
      'permits',
      view(1, 2, '1* 1'),
      'changed capacity, deleted k1, deleted k0',
    ],
    ['a later waiter for permits', 'permits', view(1, 2, '2* 1 1'), 'changed k2'],
    [
      'permits of a name that is closed',
      'permits',
      view(1, 3, '3* 1*'),
      'changed capacity, deleted k1, deleted k0',
    ],
  ]
  for (const [what, mode, queue, watched] of cases)
    test(`${what}: ${watched}`, () => {
      const keys = watchedBy(queue, mode).map(({ key, until }) => `${until} ${key}`)
      assert.equal(isEligible(queue) ? 'eligible' : keys.join(', '), watched)
    })

  test('waiters are counted, but not holders, nor what is about to be granted', () => {
    assert.equal(waitersBefore(view(1, 3, '')), 0)
    assert.equal(waitersBefore(view(1, 3, '1* 2')), 0)
    assert.equal(waitersBefore(view(1, 3, '1* 2 1 1')), 2)
    assert.equal(waitersBefore(view(1, 3, '3* 1* 1')), 1, 'the name is closed')
  })

  test('G1 what is eligible is in use before it is granted: a younger one may hold already', () => {
    const inUse = (capacity: number, entries: string) =>
      weightInUse(view(1, capacity, entries).older, capacity)
    assert.equal(inUse(4, ''), 0)
    assert.equal(inUse(4, '2 2* 1 1'), 4)
  })
})

for (const kind of ['ranges', 'lists'] as const)
  describe(`on a store that compares ${kind}`, () => {
    test('a free lock is granted in one round trip, or in two where the write cannot ask', async () => {
      const { store, session } = createRig(kind)
      const { seen, told } = await session('s').enqueue('a')
      assert.equal(grantOf(seen).token, kind === 'ranges' ? 1n : 2n)
      assert.deepEqual(store.requests, kind === 'ranges' ? ['join'] : ['join', 'confirm'])
      assert.equal(told.queued, 0)
      assert.equal(store.watchers, 0)
    })

    test('G8 waiters of several sessions are served in order, one at a time', async () => {
      const { session, release, show, store } = createRig(kind)
      const [one, two] = [session('one'), session('two')]
      const waits = [
        await one.enqueue('a'),
        await two.enqueue('b'),
        await one.enqueue('c'),
        await two.enqueue('d'),
      ]
      assert.deepEqual(
        waits.map(({ told }) => told.queued),
        [0, 1, 1, 1],
      )
      for (const expected of ['a* b c d', 'b* c d', 'c* d', 'd*']) {
        assert.equal(show(), expected)
        await release(expected[0] ?? '')
      }
      const tokens = waits.map(({ seen }) => grantOf(seen).token)
      assert.deepEqual(
        tokens,
        tokens.toSorted((a, b) => Number(a - b)),
      )
      assert.deepEqual(store.violations, [])
      assert.equal(store.watchers, 0)
    })

    test('G2 the token is that of the write that grants, and not drawn while it joins', async () => {
      const { session, release } = createRig(kind)
      const s = session('s')
      await s.enqueue('a')
      const { seen } = await s.enqueue('b')
      const other = grantOf((await s.enqueue('c', { name: 'y' })).seen)
      await release('a')
      assert(grantOf(seen).token > other.token)
      assert.equal(grantOf(seen).grantId, String(grantOf(seen).token))
    })

    test('G1 T92 a waiter in the middle gives up: the next one is woken, but is not granted', async () => {
      const { session, release, show, store, clock } = createRig(kind)
      const s = session('s')
      await s.enqueue('a')
      const [middle, last] = [await s.enqueue('b'), await s.enqueue('c')]
      store.wakeUps = 0
      middle.stop.abort()
      await clock.settle()
      assert.equal(store.wakeUps, 1)
      assert.equal(show(), 'a* c')
      await release('a')
      assert.equal(grantOf(last.seen).attempt, 'c')
      assert.deepEqual(store.violations, [])
    })

    test('readers next to each other are served together, and the writer behind them after the last', async () => {
      const { session, release, show } = createRig(kind)
      const s = session('s')
      await s.enqueue('a')
      for (const attempt of ['b', 'c', 'd']) await s.enqueue(attempt, shared)
      await s.enqueue('e')
      await s.enqueue('f', shared)
      await release('a')
      assert.equal(show(), 'b* c* d* e f')
      for (const attempt of ['d', 'b']) await release(attempt)
      assert.equal(show(), 'c* e f')
      await release('c')
      assert.equal(show(), 'e* f')
    })

    test('T72 the release of any holder lets the first waiter for permits in, and then the next', async () => {
      const { session, release, show } = createRig(kind)
      const s = session('s')
      for (const attempt of ['a', 'b', 'c']) await s.enqueue(attempt, permits(1, 3))
      await s.enqueue('d', permits(2, 3))
      for (const attempt of ['e', 'f']) await s.enqueue(attempt, permits(1, 3))
      await release('b')
      assert.equal(show(), 'a* c* d e f', 'a light request does not overtake a heavy one')
      await release('a')
      assert.equal(show(), 'c* d* e f')
      await release('d')
      assert.equal(show(), 'c* e* f*')
    })

    test('a semaphore that grows lets the first waiters in', async () => {
      const { session, show, store, clock } = createRig(kind)
      const s = session('s')
      for (const attempt of ['a', 'b', 'c', 'd']) await s.enqueue(attempt, permits(2, 2))
      store.resize('x', 6)
      await clock.settle()
      assert.equal(show(), 'a* b* c* d')
    })

    test('a capacity that changes between the look and the write: it looks again', async () => {
      const { session, show, store, clock } = createRig(kind)
      const s = session('s')
      await s.enqueue('a', permits(2, 4))
      store.isHeld = true
      await s.enqueue('b', permits(2, 4))
      for (const what of ['join', 'reply to join']) {
        assert.equal(store.inFlight[0]?.what, what)
        store.inFlight.shift()?.deliver()
        await clock.settle()
      }
      store.resize('x', 2)
      store.isHeld = false
      for (const message of store.inFlight.splice(0)) message.deliver()
      await clock.settle()
      assert.equal(show(), 'a* b')
      assert.deepEqual(store.violations, [])
    })

    test('a name that is closed while permits are held opens again for the first waiter', async () => {
      const { session, release, show, store } = createRig(kind)
      const s = session('s')
      await s.enqueue('a', permits(1, 3))
      store.close('x')
      await s.enqueue('b', permits(1, 3))
      assert.equal(show(), 'closed* a* b')
      await release('closed')
      assert.equal(show(), 'a* b*')
    })

    test('the same attempt asked again has the same position and the same grant', async () => {
      const { session, release, show } = createRig(kind)
      const s = session('s')
      await s.enqueue('a')
      const [first, , again] = [await s.enqueue('b'), await s.enqueue('c'), await s.enqueue('b')]
      assert.equal(show(), 'a* b c')
      await release('a')
      assert.equal(grantOf(first.seen).token, grantOf(again.seen).token)
      assert.equal(grantOf((await s.enqueue('b')).seen).token, grantOf(first.seen).token)
    })

    test('a try leaves nothing behind, does not overtake, and keeps a position that was there before', async () => {
      const { session, release, show } = createRig(kind)
      const s = session('s')
      assert.equal(await s.tryAcquire('a'), 'granted')
      assert.equal(await s.tryAcquire('b'), 'busy')
      assert.equal(show(), 'a*')
      await s.enqueue('c')
      assert.equal(await s.tryAcquire('c'), 'busy')
      assert.equal(show(), 'a* c')
      await release('a')
      assert.equal(await s.tryAcquire('c'), 'granted')
      assert.equal(await s.tryAcquire('d', shared), 'busy')
      assert.equal(show(), 'c*')
    })

    test('with as many waiters as it allows a call is refused, and is not queued', async () => {
      const { session, show } = createRig(kind)
      const s = session('s')
      const free = await s.enqueue('a', { maxWaiters: 0 })
      const first = await s.enqueue('b', { maxWaiters: 1 })
      const refused = [await s.enqueue('c', { maxWaiters: 1 }), await s.enqueue('d', { maxWaiters: 0 })]
      const again = await s.enqueue('b', { maxWaiters: 1 })
      assert.equal(show(), 'a* b')
      assert.equal(grantOf(free.seen).attempt, 'a')
      assert.deepEqual(
        refused.map(({ seen, told }) => [seen.value?.kind, told.queued]),
        [
          ['queue-full', 0],
          ['queue-full', 0],
        ],
      )
      assert.deepEqual([first.seen.status, again.seen.status], ['pending', 'pending'])
    })

    for (const [what, asked] of [
      ['exclusive', {}],
      ['permits', permits(1, 10)],
    ] as const)
      test(`G9 a release wakes as many with 500 waiters as with 5: ${what}`, async () => {
        const costs = []
        for (const waiters of [5, 500]) {
          const { session, release, store } = createRig(kind)
          const s = session('s')
          const holders = what === 'permits' ? 10 : 1
          for (let at = 0; at < holders + waiters; at++) await s.enqueue(`${at}`, asked)
          store.requests = []
          store.wakeUps = 0
          for (let at = 0; at < 3; at++) await release(`${at}`)
          assert.equal(store.entries('x').filter(({ token }) => token !== null).length, holders)
          costs.push([store.wakeUps, store.requests.length])
        }
        assert.deepEqual(costs[0], costs[1])
        assert.equal(
          costs[0]?.[0],
          what === 'permits' ? 6 : 3,
          'the first waiter, and for permits the next one',
        )
      })
  })

describe('a call that is cancelled', () => {
  test('before it joins has not taken effect', async () => {
    const { session, store } = createRig()
    const call = callWith(AbortSignal.abort(new Error('gone home')))
    const request = { name: 'x', attempt: 'a', lockDelayMs: 0, ...lock('exclusive') } as AcquireRequest
    for (const enter of ['enqueue', 'tryAcquire'] as const)
      await assert.rejects(session('s').queue[enter](request, call), (error) =>
        isUnavailable(error, 'not-applied'),
      )
    assert.deepEqual(store.requests, [])
  })

  test('T14 T20 while it waits ends at once as unknown, leaves the queue, and watches nothing more', async () => {
    const { session, show, store, clock } = createRig()
    const s = session('s')
    await s.enqueue('a')
    const { seen, stop } = await s.enqueue('b')
    stop.abort()
    await clock.settle()
    assert(isUnavailable(seen.reason, 'unknown'))
    assert.equal(show(), 'a*')
    assert.equal(store.watchers, 0)
    assert.equal(clock.pendingTimers, 0)
  })

  test('G6 during the granting write does not delete the grant: a keep-alive may have told of it', async () => {
    const { session, release, show, store, clock } = createRig()
    const s = session('s')
    await s.enqueue('a')
    const { seen, stop } = await s.enqueue('b')
    await holdAt(store, () => release('a'), 'event')
    await deliver(store, clock, 'event')
    await deliver(store, clock, 'confirm')
    stop.abort()
    await clock.settle()
    assert(isUnavailable(seen.reason, 'unknown'))
    await deliver(store, clock, 'leave')
    assert.equal(show(), 'b*', 'core abandons it')
  })

  test('a call that has ended listens to its cancellation no more', async () => {
    const { session, release } = createRig()
    const { queue, enqueue } = session('s')
    await enqueue('a')
    let listeners = 0
    const call = Object.assign(callWith(), {
      onCancel: () => {
        listeners++
        return () => void listeners--
      },
    })
    const waiting = queue.enqueue(
      { name: 'x', attempt: 'b', lockDelayMs: 0, ...lock('exclusive') } as AcquireRequest,
      call,
    )
    await release('a')
    assert.equal((await waiting).kind, 'granted')
    assert.equal(listeners, 0)
  })
})

/** From here on messages wait; `act` must bring about the message. */
async function holdAt(store: SimulatedStore, act: () => Promise<void>, what: string) {
  store.isHeld = true
  await act()
  assert(store.inFlight.some((message) => message.what === what))
}

async function deliver(
  store: SimulatedStore,
  clock: { settle(): Promise<void> },
  what: string,
  how?: 'lost',
) {
  const at = store.inFlight.findIndex((message) => message.what === what)
  assert(at >= 0, `no ${what} in flight, but ${store.inFlight.map((message) => message.what)}`)
  const [message] = store.inFlight.splice(at, 1)
  if (how === 'lost') message?.lose(false)
  else message?.deliver()
  await clock.settle()
}

describe('what gets lost', () => {
  test('T19 a release between the view and the watch is not missed', async () => {
    const { session, release, show, store, clock } = createRig()
    const s = session('s')
    await s.enqueue('a')
    store.isHeld = true
    await s.enqueue('b')
    await deliver(store, clock, 'join')
    await release('a')
    store.isHeld = false
    await deliver(store, clock, 'reply to join')
    assert.equal(show(), 'b*')
  })

  test('T19 a wake-up that never comes costs one keep-alive, which brings the grant', async () => {
    const { session, release, show, store, clock } = createRig()
    const s = session('s')
    await s.enqueue('a')
    const [{ seen }, behind] = [await s.enqueue('b'), await s.enqueue('c')]
    await holdAt(store, () => release('a'), 'event')
    for (const event of store.inFlight.splice(0)) event.lose(true)
    store.isHeld = false
    await clock.advance(TTL_MS / 2)
    assert.equal(seen.status, 'pending')
    const granted = (await s.keepAlive()) ?? []
    assert.deepEqual(granted, [grantOf(seen)])
    assert.equal(show(), 'b* c')
    assert.deepEqual(await s.keepAlive(), [], 'a call that has ended is not looked after any more')
    assert.equal(behind.seen.status, 'pending')
  })

  test('a watch that is lost makes it look again after a pause, once', async () => {
    const { session, release, show, store, clock } = createRig()
    const s = session('s')
    await s.enqueue('a')
    await s.enqueue('b')
    const cancelled = await s.enqueue('c')
    store.disconnect('s')
    store.requests = []
    await clock.settle()
    assert.deepEqual(store.requests, [], 'waiters of one connection do not all look at the same moment')
    cancelled.stop.abort()
    await clock.settle()
    assert.equal(clock.pendingTimers, 1)
    await clock.advance(1_000)
    assert.deepEqual(store.requests, ['leave', 'look'])
    await release('a')
    assert.equal(show(), 'b*')
  })

  test('a keep-alive that finds nothing new leaves the watches as they are', async () => {
    const { session, store } = createRig()
    const s = session('s')
    await s.enqueue('a')
    for (const attempt of ['b', 'c']) await s.enqueue(attempt)
    store.subscriptions = 0
    assert.deepEqual(await s.keepAlive(), [])
    assert.equal(store.subscriptions, 0)
  })

  test('T12 the reply to the granting write is lost: the next look finds the grant and its token', async () => {
    const { session, release, store, clock } = createRig()
    const s = session('s')
    await s.enqueue('a')
    const { seen } = await s.enqueue('b')
    await holdAt(store, () => release('a'), 'event')
    for (const what of ['event', 'confirm']) await deliver(store, clock, what)
    await deliver(store, clock, 'reply to confirm', 'lost')
    store.isHeld = false
    assert.equal(seen.status, 'pending', 'it keeps its position')
    await s.keepAlive()
    assert.equal(grantOf(seen).token, store.entries('x')[0]?.token)
    assert.deepEqual(store.requests.filter((what) => what === 'confirm').length, 1)
  })

  test('an outage costs no position, however many looks fail before the next keep-alive', async () => {
    const { session, release, store, clock } = createRig()
    const s = session('s')
    await s.enqueue('a')
    const { seen } = await s.enqueue('b')
    await holdAt(store, () => release('a'), 'event')
    await deliver(store, clock, 'event')
    await deliver(store, clock, 'confirm', 'lost')
    store.disconnect('s')
    await clock.advance(1_000)
    await deliver(store, clock, 'look', 'lost')
    assert.equal(seen.status, 'pending')
    store.isHeld = false
    assert.deepEqual(await s.keepAlive(), [grantOf(seen)])
  })

  test('G11 a look that fails again although a keep-alive was confirmed ends the call as unknown', async () => {
    const { session, release, store, clock } = createRig()
    const s = session('s')
    await s.enqueue('a')
    const { seen } = await s.enqueue('b')
    await holdAt(store, () => release('a'), 'event')
    await deliver(store, clock, 'event')
    await deliver(store, clock, 'confirm', 'lost')
    const kept = peek(s.keepAlive())
    await clock.settle()
    await deliver(store, clock, 'look', 'lost')
    assert(isUnavailable(seen.reason, 'unknown'))
    assert.deepEqual([kept.status, kept.value], ['fulfilled', []], 'the keep-alive itself has not failed')
  })

  test('G6 after the join a step that was not applied is reported as unknown: the key is there', async () => {
    const { store, clock } = createRig('lists')
    const engine = store.openQueue('s')
    const refused = Object.assign(engine, {
      confirm: () => Promise.reject(new BackendUnavailableError('simulated', 'no space', 'not-applied')),
    })
    const terms = { since: instantOf(clock), ttlMs: TTL_MS }
    const queue = new PredecessorQueue({
      lifetime: new Lifetime('simulated', clock),
      store: refused,
      clock,
      random: seededRandom(1),
      session: () => terms,
    })
    const request = { name: 'x', attempt: 'a', lockDelayMs: 0, ...lock('exclusive') } as AcquireRequest
    await assert.rejects(
      queue.enqueue(request, callWith()),
      (error) => isUnavailable(error, 'unknown') && /no space/.test(String((error as Error).cause)),
    )
  })
})

describe('the end of a key or a session', () => {
  test('T84 a look at a key does not grant a later key of the same attempt', async () => {
    const overtakes = []
    for (const broken of [undefined, 'confirms any key of the attempt'] as const) {
      const { session, release, store, clock } = createRig('lists', broken)
      const s = session('s')
      store.isHeld = true
      // The request is sent twice, and the second copy arrives after an operator has deleted the key.
      for (let copies = 0; copies < 2; copies++) await s.enqueue('a')
      await deliver(store, clock, 'join')
      await deliver(store, clock, 'reply to join')
      await release('a')
      await s.enqueue('b')
      const second = store.inFlight.findLastIndex(({ what }) => what === 'join')
      store.inFlight.splice(second, 1)[0]?.deliver()
      for (const what of ['join', 'confirm']) await deliver(store, clock, what)
      overtakes.push(store.violations.length)
    }
    assert.deepEqual(overtakes, [0, 1])
  })

  test('T34 an operator deletes the key of a waiter: its call ends, and has not taken effect', async () => {
    const { session, release, show } = createRig()
    const s = session('s')
    await s.enqueue('a')
    const { seen } = await s.enqueue('b')
    await s.enqueue('c')
    await release('b')
    assert(isUnavailable(seen.reason, 'not-applied'))
    assert.equal(show(), 'a* c')
  })

  test('T18 a session that expires ends its waits, and the next waiter goes on', async () => {
    const { session, release, show, store, clock } = createRig()
    const [s, dead] = [session('s'), session('dead')]
    await s.enqueue('a')
    const { seen } = await dead.enqueue('b')
    await s.enqueue('c')
    store.endSession('dead')
    await clock.settle()
    assert.deepEqual(seen.value, { kind: 'session-gone' })
    await release('a')
    assert.equal(show(), 'c*')
  })

  test('a backend that closes, or a keep-alive that finds the session gone, ends all waits', async () => {
    const { session, store, clock } = createRig()
    const [s, closing] = [session('s'), session('closing')]
    await s.enqueue('a')
    const waits = [await s.enqueue('b'), await closing.enqueue('c')]
    store.isHeld = true
    store.endSession('s')
    await s.keepAlive()
    closing.lifetime.end()
    await clock.settle()
    assert.deepEqual(waits[0]?.seen.value, { kind: 'session-gone' })
    assert.match(String(waits[1]?.seen.reason), /closed/)
    assert.equal(store.watchers, 0)
  })

  test('a wait that has ended leaves nothing with the backend, however it ended', async () => {
    const { session, release, store, clock } = createRig()
    const [s, other] = [session('s'), session('other')]
    await other.enqueue('a')
    await s.enqueue('b')
    const { stop } = await s.enqueue('c')
    await s.enqueue('d')
    assert.deepEqual([s.lifetime.tied, other.lifetime.tied], [3, 0])
    await release('a')
    assert.equal(s.lifetime.tied, 2)
    stop.abort()
    await clock.settle()
    assert.equal(s.lifetime.tied, 1)
    store.endSession('s')
    await clock.settle()
    assert.equal(s.lifetime.tied, 0)
  })
})

describe('time', () => {
  test('T65 a grant counts from the session’s last prolongation, and not from the wake-up', async () => {
    const { session, release, clock } = createRig()
    const [s, other] = [session('s'), session('other')]
    await other.enqueue('a')
    const { seen } = await s.enqueue('b')
    await clock.advance(2_000)
    await s.keepAlive()
    const prolonged = instantOf(clock)
    await clock.advance(2_000)
    await release('a')
    assert.deepEqual(grantOf(seen).since, prolonged)
    assert.equal(grantOf(seen).ttlMs, TTL_MS)
  })

  test('T17 after a pause that the session may not have outlived nothing is granted before a keep-alive', async () => {
    const { session, release, show, store, clock } = createRig()
    const [s, other] = [session('s'), session('other')]
    await other.enqueue('a')
    const { seen } = await s.enqueue('b')
    clock.block(TTL_MS)
    await release('a')
    assert.equal(show(), 'b')
    assert.equal(store.requests.at(-1), 'look')
    await s.keepAlive()
    assert.equal(grantOf(seen).since.monotonicMs, clock.monotonicMs())
  })
})
