import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { createRig } from '../../test/rig.ts'
import { defaults } from '../base/defaults.ts'
import { memory } from '../engines/memory/index.ts'
import type { Backend, HolderState, NameState, WaiterState, WatchEvent } from '../spi.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { watchByListing } from './watch-by-listing.ts'

const holder = (id: string, token: bigint | null = 1n): HolderState => ({
  id,
  holder: `client of ${id}`,
  mode: 'exclusive',
  weight: 1,
  session: `session of ${id}`,
  ttlMs: 15_000,
  token,
  heldForMs: 0,
  expiresInMs: 1,
})
const waiter = (id: string): WaiterState => ({
  id,
  holder: `client of ${id}`,
  mode: 'exclusive',
  weight: 1,
  session: `session of ${id}`,
  ttlMs: 15_000,
  waitingForMs: 0,
})
const named = (name: string, holders: HolderState[] = [], waiters: WaiterState[] = []): NameState => ({
  name,
  capacity: 1,
  holders,
  waiters,
  closedForMs: 0,
  atMs: 0,
})

/** Watches lists that the test sets; `seen` is what was told so far, in short. */
function watchLists({ list: first = [], ...options }: { cursor?: string; list?: NameState[] } = {}) {
  const clock = createFakeClock()
  const controller = new AbortController()
  const state = { list: first, lists: 0, error: undefined as unknown }
  const events: WatchEvent[] = []
  const list = async function* () {
    state.lists++
    if (state.error !== undefined) throw state.error
    // A page for each name.
    for (const each of state.list) yield [each]
  }
  const ended = (async () => {
    const watched = watchByListing(list, { clock, intervalMs: 200, signal: controller.signal, ...options })
    for await (const event of watched) events.push(event)
  })()
  const seen = () =>
    events.map((event) => (event.kind === 'gap' ? 'gap' : `${event.kind} ${event.name} ${event.id}`))
  const next = async (list: NameState[]) => {
    state.list = list
    await clock.advance(200)
    return seen()
  }
  return { clock, controller, state, events, ended, seen, next }
}

describe('watching by listing', () => {
  test('a new holder and a new waiter are told as acquired and waiting', async () => {
    const { next, events } = watchLists()
    assert.deepEqual(await next([named('n', [holder('a', 7n)], [waiter('b')])]), [
      'acquired n a',
      'waiting n b',
    ])
    const [acquired, waiting] = events
    assert.deepEqual(acquired, {
      kind: 'acquired',
      name: 'n',
      id: 'a',
      holder: 'client of a',
      token: 7n,
      cursor: 'list:1',
    })
    assert.ok(waiting?.kind === 'waiting' && waiting.token === null && waiting.cursor === 'list:2')
  })

  test('changes between two lists, the ends before the beginnings', async () => {
    const { next, events } = watchLists()
    await next([named('n', [holder('a')], [waiter('b'), waiter('c')]), named('m', [holder('x')])])
    events.length = 0
    const told = await next([named('n', [holder('b', 2n)]), named('m', [holder('x')], [waiter('y')])])
    assert.deepEqual(told, ['ended n a', 'gave-up n c', 'acquired n b', 'waiting m y'])
  })

  test('what does not change is not told again', async () => {
    const { next, events, state } = watchLists()
    const list = [named('n', [holder('a')], [waiter('b')]), named('empty')]
    await next(list)
    events.length = 0
    for (let rounds = 0; rounds < 5; rounds++) assert.deepEqual(await next(structuredClone(list)), [])
    assert.ok(state.lists >= 6)
  })

  test('a position that is given up and taken anew is another one', async () => {
    const { next, events } = watchLists()
    await next([named('n', [holder('a', 1n)])])
    events.length = 0
    assert.deepEqual(await next([named('n', [holder('a2', 2n)])]), ['ended n a', 'acquired n a2'])
    assert.deepEqual(await next([]), ['ended n a', 'acquired n a2', 'ended n a2'])
  })

  test('it starts now: what is there at first is not told', async () => {
    const watched = watchLists({ list: [named('n', [holder('a')], [waiter('b')])] })
    await watched.clock.settle()
    assert.deepEqual(watched.seen(), [])
    assert.deepEqual(await watched.next([named('n', [holder('b')])]), ['ended n a', 'acquired n b'])
  })

  test('a watcher that comes back with a cursor is told of a gap and of the current holders', async () => {
    const watched = watchLists({ cursor: 'list:7', list: [named('n', [holder('a')], [waiter('b')])] })
    await watched.clock.settle()
    assert.deepEqual(watched.seen(), ['gap', 'acquired n a'])
  })

  test('lists are as far apart as told', async () => {
    const { clock, state } = watchLists()
    await clock.settle()
    assert.equal(state.lists, 1)
    await clock.advance(199)
    assert.equal(state.lists, 1)
    await clock.advance(1)
    assert.equal(state.lists, 2)
  })

  test('T27 an abort ends the iteration at once, without an error and without a timer', async () => {
    const { clock, controller, ended, state } = watchLists()
    await clock.advance(250)
    controller.abort(new Error('enough'))
    await ended
    assert.equal(clock.pendingTimers, 0)
    const { lists } = state
    await clock.advance(1_000)
    assert.equal(state.lists, lists)
  })

  test('an abort before it starts means that nothing is listed', async () => {
    let lists = 0
    const list = async function* () {
      lists++
      yield []
    }
    const options = { clock: createFakeClock(), intervalMs: 200, signal: AbortSignal.abort() }
    assert.equal((await watchByListing(list, options).next()).done, true)
    assert.equal(lists, 0)
  })

  test('T56 a list that fails is an error, not an empty list', async () => {
    const { clock, ended, state, next, seen } = watchLists()
    await next([named('n', [holder('a')])])
    state.error = new Error('engine down')
    const failed = assert.rejects(ended, /engine down/)
    await clock.advance(200)
    await failed
    assert.deepEqual(seen(), ['acquired n a'], 'nothing was told to be released')
  })
})

describe('through a locker whose engine cannot watch', () => {
  const withoutWatch = (backend: Backend<'fenced'>): Backend<'fenced'> =>
    Object.defineProperty(backend, 'watch', { value: undefined })

  test('the same events, with the epoch in their tokens, and only of the prefix', async () => {
    const { clock, engine, locker } = createRig()
    const wrap = () => withoutWatch(memory({ engine, clock, epoch: 3 }))
    const controller = new AbortController()
    const seen: string[] = []
    const ended = (async () => {
      for await (const event of locker({ wrap }).watch('in/', { signal: controller.signal }))
        if (event.kind !== 'gap') seen.push(`${event.kind} ${event.name} ${event.id} ${event.token}`)
    })()
    const holding = locker({ wrap })
    const inside = await holding.acquire('in/side')
    await using _outside = await holding.acquire('out/side')
    await clock.advance(defaults.watchIntervalMs)
    const { id, fence } = inside
    await inside.release()
    await clock.advance(defaults.watchIntervalMs)
    controller.abort()
    await ended
    assert.ok(fence.token > 3n << 52n)
    assert.deepEqual(seen, [`acquired in/side ${id} ${fence.token}`, `ended in/side ${id} ${fence.token}`])
  })

  test('an abort while the engine is being asked ends it without an error', async () => {
    const rig = createRig()
    const controller = new AbortController()
    const watcher = rig.locker({
      wrap: (backend) => Object.assign(withoutWatch(backend), { list: () => new Promise(() => {}) }),
    })
    const next = watcher.watch('', { signal: controller.signal })[Symbol.asyncIterator]().next()
    await rig.clock.settle()
    controller.abort(new Error('enough'))
    assert.equal((await next).done, true)
  })
})
