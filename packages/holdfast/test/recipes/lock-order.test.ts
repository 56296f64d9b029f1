import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type HoldfastEvents, type LockOrder, onEvent } from '../../src/base/events.ts'
import type { Locker, NameState } from '../../src/base/types.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { type Deadlock, findDeadlocks, watchLockOrder } from '../../src/recipes/lock-order.ts'
import { reentrant } from '../../src/recipes/reentrant.ts'
import { traceLocker } from '../../src/telemetry/spans.ts'
import { describeRecipe, type RecipeWorld } from './worlds.ts'

/** Events of lockers with this label: cases of one engine run side by side. */
function listen(holder: string) {
  const told: HoldfastEvents['lock-order'][] = []
  const stop = onEvent('lock-order', (event) => {
    if (event.holder === holder) told.push(event)
  })
  return Object.assign(told, { [Symbol.dispose]: stop })
}

const pairs = (orders: readonly LockOrder[] = []) => orders.map(({ held, asked }) => `${held} → ${asked}`)

/** Waits that are ended, and awaited, at the end of the case. */
class Waits implements AsyncDisposable {
  readonly #world: RecipeWorld
  readonly #stop = new AbortController()
  readonly #pending: Promise<unknown>[] = []

  constructor(world: RecipeWorld) {
    this.#world = world
  }

  async acquire(locker: Locker<'fenced'>, owner: string, name: string, more: object = {}): Promise<void> {
    const options = { owner, waitMs: Number.POSITIVE_INFINITY, signal: this.#stop.signal, ...more }
    const before = (await locker.inspect(name))?.waiters.length ?? 0
    const asked =
      'capacity' in more
        ? locker.acquirePermits(name, options as typeof options & { capacity: number })
        : locker.acquire(name, options)
    this.#pending.push(asked.catch(() => {}))
    await this.#world.until(`${owner} waits for ${name}`, async () => {
      return ((await locker.inspect(name))?.waiters.length ?? 0) > before
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort()
    await Promise.all(this.#pending)
  }
}

const waitsFor = (deadlocks: readonly Deadlock[]) =>
  deadlocks.map(({ tasks }) =>
    tasks.map(({ owner, waitsFor, behind }) => `${owner} waits for ${waitsFor} behind a ${behind}`).sort(),
  )

describeRecipe('lock order', (stage) => {
  stage.test(
    'opposite orders of two tasks are told once, with both orders and both call sites',
    async (world) => {
      const holder = `watched-${world.engine}`
      const locker = watchLockOrder(await world.locker({ holder }))
      using told = listen(holder)
      for (let times = 0; times < 2; times++) {
        await locker.withLease('a', () => locker.withLease('b', () => {}))
        expect(told).toHaveLength(Math.min(times, 1))
        await locker.withLease('b', () => locker.withLease('a', () => {}))
      }
      expect(told).toHaveLength(1)
      expect(told[0]).toMatchObject({ backend: locker.info.name, namespace: locker.info.namespace })
      const [first, second] = told[0]?.orders ?? []
      expect(pairs(told[0]?.orders)).toEqual(['a → b', 'b → a'])
      const sites = [first?.heldAt, first?.askedAt, second?.heldAt, second?.askedAt]
      for (const site of sites) expect(site).toMatch(/test\/recipes\/lock-order\.test\.ts:\d+:\d+$/)
      expect(new Set(sites).size).toBe(4)
    },
  )

  stage.test('a call site is in the program, also if the locker is traced', async (world) => {
    const holder = `traced-${world.engine}`
    const span = { setAttributes() {}, setStatus() {}, addEvent() {}, end() {} }
    const tracer = {
      startSpan: () => span,
      startActiveSpan: <T>(_name: string, _options: object, run: (active: typeof span) => T) => run(span),
    }
    const locker = traceLocker(watchLockOrder(await world.locker({ holder })), { tracer })
    using told = listen(holder)
    await locker.withLease('a', () => locker.withLeases(['b'], () => {}))
    await locker.withLease('b', () => locker.withLease('a', () => {}))
    const sites = told.flatMap(({ orders }) => orders).flatMap(({ heldAt, askedAt }) => [heldAt, askedAt])
    expect(sites).toHaveLength(4)
    for (const site of sites) expect(site).toMatch(/test\/recipes\/lock-order\.test\.ts:\d+:\d+$/)
  })

  stage.test('findDeadlocks sees two owners that wait for each other', async (world) => {
    const [one, two] = [await world.locker({ holder: 'one' }), await world.locker({ holder: 'two' })]
    await one.acquire('x', { owner: 'request-1' })
    await two.acquire('y', { owner: 'request-2' })
    await using waits = new Waits(world)
    await waits.acquire(one, 'request-1', 'y')
    expect(findDeadlocks(await one.list())).toEqual([])
    // A bystander in the queue is no part of it.
    await waits.acquire(two, 'bystander', 'x')
    await waits.acquire(two, 'request-2', 'x')
    const found = findDeadlocks(await one.list())
    expect(waitsFor(found)).toEqual([
      ['request-1 waits for y behind a holder', 'request-2 waits for x behind a holder'],
    ])
    expect(found[0]?.tasks.map((task) => task.holder).sort()).toEqual(['one', 'two'])
    for (const { waitingForMs } of found[0]?.tasks ?? []) expect(waitingForMs).toBeGreaterThanOrEqual(0)
  })

  stage.test(
    'without owners it finds none: a process that waits for itself may be two tasks',
    async (world) => {
      const locker = await world.locker()
      await locker.acquire('x')
      await locker.acquire('y', { owner: 'request-2' })
      await using waits = new Waits(world)
      await waits.acquire(locker, 'request-1', 'x')
      await waits.acquire(locker, 'request-2', 'x')
      expect(findDeadlocks(await locker.list())).toEqual([])
    },
  )

  stage.test('an upgrade waits for itself', async (world) => {
    const locker = await world.locker()
    await locker.acquire('x', { owner: 'reader', mode: 'shared' })
    await using waits = new Waits(world)
    await waits.acquire(locker, 'reader', 'x')
    expect(waitsFor(findDeadlocks(await locker.list()))).toEqual([['reader waits for x behind a holder']])
  })

  stage.test('readers: a reader that waits behind a writer in the queue is part of it', async (world) => {
    const locker = await world.locker()
    await locker.acquire('x', { owner: 'reader', mode: 'shared' })
    await locker.acquire('z', { owner: 'late reader' })
    await using waits = new Waits(world)
    await waits.acquire(locker, 'writer', 'x')
    await waits.acquire(locker, 'late reader', 'x', { mode: 'shared' })
    expect(findDeadlocks(await locker.list())).toEqual([])
    await waits.acquire(locker, 'reader', 'z')
    expect(waitsFor(findDeadlocks(await locker.list()))).toEqual([
      [
        'late reader waits for x behind a waiter',
        'reader waits for z behind a holder',
        'writer waits for x behind a holder',
      ],
    ])
  })

  stage.test('permits: a cycle is no deadlock while another holder can give back enough', async (world) => {
    const locker = await world.locker()
    const capacity = 2
    await locker.acquirePermits('pool', { capacity, owner: 'one' })
    const other = await locker.acquirePermits('pool', { capacity, owner: 'other' })
    await locker.acquire('x', { owner: 'two' })
    await using waits = new Waits(world)
    await waits.acquire(locker, 'one', 'x')
    await waits.acquire(locker, 'two', 'pool', { capacity, weight: 1 })
    expect(findDeadlocks(await locker.list())).toEqual([])
    await waits.acquire(locker, 'other', 'x')
    // One cycle is told, through either of the two holders.
    expect(waitsFor(findDeadlocks(await locker.list()))).toEqual([
      [
        expect.stringMatching(/^(one|other) waits for x behind a holder$/),
        'two waits for pool behind a holder',
      ],
    ])
    await other.release()
    await world.until('two has its permit', async () => (await locker.inspect('pool'))?.waiters.length === 0)
    expect(findDeadlocks(await locker.list())).toEqual([])
  })
})

describe('the watch', () => {
  let plain: Locker<'fenced'>
  let told: ReturnType<typeof listen>

  beforeEach(() => {
    plain = createLocker(memory())
    told = listen(plain.holder)
  })

  afterEach(async () => {
    told[Symbol.dispose]()
    await plain.close()
  })

  const nested = (locker: Locker, [first = '', ...rest]: readonly string[]): Promise<void> =>
    locker.withLease(first, async () => {
      if (rest.length > 0) await nested(locker, rest)
    })

  test('longer cycles are told too', async () => {
    const locker = watchLockOrder(plain)
    await nested(locker, ['a', 'b'])
    await nested(locker, ['b', 'c'])
    await nested(locker, ['a', 'c'])
    expect(told).toHaveLength(0)
    await nested(locker, ['c', 'a'])
    expect(told.map(({ orders }) => pairs(orders))).toEqual([['a → c', 'c → a']])
    await nested(locker, ['c', 'd'])
    await nested(locker, ['d', 'b'])
    expect(pairs(told[1]?.orders)).toEqual(['b → c', 'c → d', 'd → b'])
  })

  test('an owner is a task for acquire, and what it has released or lost counts no more', async () => {
    const locker = watchLockOrder(plain)
    const take = async (owner: string, ...names: string[]) => {
      const leases = []
      for (const name of names) leases.push(await locker.acquire(name, { owner }))
      return Promise.all(leases.map((lease) => lease.release()))
    }
    await take('request-1', 'a', 'b')
    // Released in between: it does not hold one while it asks for the other.
    await take('request-1', 'b')
    await take('request-1', 'a')
    await (await locker.acquire('b', { owner: 'request-2' })).release()
    const lost = await locker.acquire('b', { owner: 'request-3' })
    await plain.forceRelease('b', { all: true, reason: 'a test' })
    await lost.renew().catch(() => {})
    expect(lost.state).toBe('lost')
    await take('request-3', 'a')
    expect(told).toHaveLength(0)
    await take('request-4', 'b', 'a')
    expect(told).toHaveLength(1)
  })

  test('tasks that only run at the same time are no violation', async () => {
    const locker = watchLockOrder(plain)
    const task = async (name: string) => {
      await using lease = await locker.acquire(name)
      await lease.ensure(1)
      await new Promise(setImmediate)
    }
    await Promise.all([task('a'), task('b')])
    await Promise.all([task('b'), task('a')])
    const body = (name: string) => locker.withLease(name, () => new Promise<void>(setImmediate))
    await Promise.all([body('a'), body('b')])
    await Promise.all([body('b'), body('a')])
    expect(told).toHaveLength(0)
  })

  test('bodies that run side by side in one body do not hold what the others hold', async () => {
    const locker = watchLockOrder(plain)
    const sideBySide = (first: string, second: string) =>
      locker.withLease('batch', async () => {
        const [begun, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
        const other = locker.withLease(first, () => {
          begun.resolve()
          return end.promise
        })
        await begun.promise
        await nested(locker, [second, `${second}/part`])
        end.resolve()
        await other
      })
    await sideBySide('a', 'b')
    await sideBySide('b', 'a')
    expect(told).toHaveLength(0)
    await nested(locker, ['a/part', 'batch'])
    expect(pairs(told[0]?.orders)).toEqual(['batch → a/part', 'a/part → batch'])
  })

  test('acquireAll sorts and is no violation; single locks against its order are one', async () => {
    const locker = watchLockOrder(plain)
    for (const names of [
      ['a', 'b', 'c'],
      ['c', 'a', 'b'],
    ])
      await (await locker.acquireAll(names)).release()
    expect(told).toHaveLength(0)
    await nested(locker, ['c', 'a'])
    expect(pairs(told[0]?.orders)).toEqual(['a → b', 'b → c', 'c → a'])
    await locker.withLease('z', async () => {
      await using set = await locker.acquireAll(['d', 'e'])
      expect(set.leases).toHaveLength(2)
      await using more = await locker.acquire('f')
      expect(more.state).toBe('held')
    })
    await nested(locker, ['f', 'e'])
    expect(pairs(told[1]?.orders)).toEqual(['e → f', 'f → e'])
  })

  test('the body of withLeases is a task, which holds all of its names', async () => {
    const locker = watchLockOrder(plain)
    await locker.withLeases(['b', 'a'], async ({ leases }) => {
      expect(leases).toHaveLength(2)
      await using more = await locker.acquire('c')
      expect(more.state).toBe('held')
    })
    await nested(locker, ['c', 'a'])
    expect(pairs(told[0]?.orders)).toEqual(['a → c', 'c → a'])
    for (const { heldAt, askedAt } of told[0]?.orders ?? [])
      for (const site of [heldAt, askedAt]) expect(site).toContain('lock-order.test.ts')
    await locker.withLease('x', () => locker.withLeases(['y', 'z'], () => {}))
    await nested(locker, ['z', 'x'])
    expect(pairs(told[1]?.orders)).toEqual(['x → z', 'z → x'])
  })

  test('permits count, and a call that does not wait closes no cycle but holds', async () => {
    const locker = watchLockOrder(plain)
    await locker.withLease('a', async () => {
      await using permit = await locker.acquirePermits('pool', { capacity: 2 })
      expect(permit.weight).toBe(1)
    })
    await locker.withLease('pool-b', async () => {
      await using tried = await locker.tryAcquire('a')
      expect(tried?.state).toBe('held')
    })
    await locker.withLease('x', async () => {
      await using tried = await locker.tryAcquirePermits('pool', { capacity: 2 })
      expect(tried?.state).toBe('held')
      await using lease = await locker.acquire('y', { waitMs: 0 })
      expect(lease.state).toBe('held')
      expect(told).toHaveLength(0)
      await locker.withLease('a', () => {})
    })
    expect(told.map(({ orders }) => pairs(orders))).toEqual([['a → pool', 'pool → a']])
  })

  test('with re-entrancy, in either order, the call site is the user’s', async () => {
    for (const locker of [reentrant(watchLockOrder(plain)), watchLockOrder(reentrant(plain))]) {
      const known = told.length
      await locker.withLease('a', () => locker.withLease('a', () => nested(locker, ['b', 'a'])))
      expect(told).toHaveLength(known)
      await nested(locker, ['b', 'a'])
      expect(told).toHaveLength(known + 1)
      for (const { heldAt, askedAt } of told.at(-1)?.orders ?? [])
        for (const site of [heldAt, askedAt]) expect(site).toContain('lock-order.test.ts')
    }
  })

  test('memory is bounded: the oldest orders are forgotten', async () => {
    const locker = watchLockOrder(plain, { maxOrders: 3 })
    await nested(locker, ['a', 'b'])
    for (const id of [1, 2, 3]) await nested(locker, [`order/${id}`, `item/${id}`])
    await nested(locker, ['b', 'a'])
    expect(told).toHaveLength(0)
    await nested(locker, ['a', 'b'])
    expect(told).toHaveLength(1)
  })

  test('without a listener nothing is noted', async () => {
    told[Symbol.dispose]()
    const locker = watchLockOrder(plain)
    await nested(locker, ['a', 'b'])
    using again = listen(plain.holder)
    await nested(locker, ['b', 'a'])
    expect(again).toHaveLength(0)
  })

  test('wrong calls are refused as by the locker itself', async () => {
    const locker = watchLockOrder(plain)
    expect(() => watchLockOrder({} as never)).toThrow(/locker must be a locker/)
    expect(() => watchLockOrder(plain, { maxOrders: 0 })).toThrow(/maxOrders must be at least 1/)
    expect(() => watchLockOrder(plain, { max: 1 } as object)).toThrow(/no option "max"/)
    await expect(locker.acquire(5 as never)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(locker.acquire('a', null as never)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(locker.acquireAll(null as never)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(locker.acquireAll(['a', 'a'])).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(locker.withLease('a', 5 as never)).rejects.toThrow(/body must be a function/)
    await expect(locker.withLeases(['a'], 5 as never)).rejects.toThrow(/body must be a function/)
    await expect(locker.withLeases(['a', 'a'], () => {})).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(locker.acquirePermits('a', undefined as never)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
  })
})

describe('findDeadlocks', () => {
  test('refuses what is not a list', () => {
    expect(() => findDeadlocks({} as never)).toThrow(/states must be a list/)
    expect(findDeadlocks([])).toEqual([])
  })

  const claim = (owner: string) => ({
    ...{
      id: owner,
      holder: 'one',
      owner,
      mode: 'exclusive' as const,
      session: 's',
      ttlMs: 1,
      waitingForMs: 0,
    },
    ...{ token: 1n, heldForMs: 1, expiresInMs: 1 },
  })
  const state = (name: string, holder: string, ...waiters: string[]): NameState =>
    ({ name, atMs: 0, holders: [claim(holder)], waiters: waiters.map(claim) }) as unknown as NameState

  test('several deadlocks are told apart, each once', () => {
    const states = [
      state('a', '1', '2'),
      state('b', '2', '1'),
      state('c', '3', '4'),
      state('d', '4', '5'),
      state('e', '5', '3', '6'),
    ]
    expect(findDeadlocks(states).map(({ tasks }) => tasks.map(({ owner }) => owner).sort())).toEqual([
      ['1', '2'],
      ['3', '4', '5'],
    ])
  })

  test('the same owner of two holders is two tasks', () => {
    const other = { ...state('b', '1', '1') }
    const [holder] = other.holders
    const states = [
      { ...other, holders: [{ ...holder, holder: 'two' }] } as NameState,
      { ...state('a', '1', '1'), waiters: [{ ...claim('1'), holder: 'two' }] } as unknown as NameState,
    ]
    expect(
      findDeadlocks(states)[0]
        ?.tasks.map((task) => task.holder)
        .sort(),
    ).toEqual(['one', 'two'])
  })

  test('a long queue behind a deadlock costs little', () => {
    const many = Array.from({ length: 20_000 }, (_, index) => `waiter-${index}`)
    const states = [state('a', '1', '2', ...many), state('b', '2', '1')]
    expect(findDeadlocks(states).map(({ tasks }) => tasks.length)).toEqual([2])
  })
})
