import { expect, test } from 'vitest'
import { FenceStaleError } from '../../src/base/errors.ts'
import type { Locker } from '../../src/base/types.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import {
  type SingleFlightOptions,
  type SingleFlightStore,
  type StoredResult,
  singleFlight,
} from '../../src/recipes/single-flight.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import { describeRecipe } from './worlds.ts'

const key = 'report/2026-11'
const keepMs = 3_600_000

/** The shelf that all processes share. It refuses older fences, unless it is told to be careless. */
class Shelf {
  readonly results = new Map<string, { readonly text: string; readonly token: bigint }>()
  readonly refused: bigint[] = []
  checksFences = true
  gets = 0

  /** The store, as each process has its own client of it. */
  client(): SingleFlightStore<string, 'fenced'> {
    return {
      get: async (key) => {
        this.gets++
        const found = this.results.get(key)
        return found === undefined ? null : (JSON.parse(found.text) as StoredResult<string>)
      },
      set: async (key, result, { fence }) => {
        const highest = this.results.get(key)?.token ?? 0n
        if (this.checksFences && fence.token < highest) {
          this.refused.push(fence.token)
          throw new FenceStaleError(fence, highest)
        }
        this.results.set(key, { text: JSON.stringify(result), token: fence.token })
      },
    }
  }

  get value(): string | undefined {
    const found = this.results.get(key)
    return found === undefined ? undefined : (JSON.parse(found.text) as StoredResult<string>).value
  }
}

/** A process of the fleet, and what its computations are told to do. */
function processOf(locker: Locker<'fenced'>, shelf: Shelf, more: object = {}) {
  const options: SingleFlightOptions<string, 'fenced'> = { store: shelf.client(), keepMs, ...more }
  return (compute: () => Promise<string> | string, own: object = {}) =>
    singleFlight(locker, key, { ...options, ...own }, compute)
}

/** Work that goes on until it is told to end. */
function task(): {
  start: () => Promise<string>
  begun: Promise<void>
  end(value: string): void
  fail(error: Error): void
} {
  const begun = Promise.withResolvers<void>()
  const work = Promise.withResolvers<string>()
  const start = () => {
    begun.resolve()
    return work.promise
  }
  return { start, begun: begun.promise, end: work.resolve, fail: work.reject }
}

const never = () => {
  throw new Error('computed once too often')
}

describeRecipe('single flight', (stage) => {
  stage.test('one process computes, and the others wait and read its result', async (world) => {
    const shelf = new Shelf()
    const fleet = []
    for (let count = 0; count < 4; count++) fleet.push(processOf(await world.locker(), shelf))
    let computed = 0
    const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>()
    const calls = fleet.map((call) =>
      call(async () => {
        const number = ++computed
        await mayEnd
        return `report ${number}`
      }),
    )
    const waiting = await world.locker()
    await world.until('three wait', async () => {
      return (await waiting.inspect(`single-flight/${key}`))?.waiters.length === 3
    })
    end()
    let values: readonly string[] | undefined
    Promise.all(calls).then((all) => {
      values = all
    })
    await world.until('all have it', () => values !== undefined)
    expect(values).toEqual(Array(4).fill('report 1'))
    expect(computed).toBe(1)
    // Later calls ask the store only.
    for (const call of fleet) expect(await call(never)).toBe('report 1')
  })

  stage.test('a waiter computes when the computing process dies', async (world) => {
    const shelf = new Shelf()
    const [dying, living] = [await world.locker(), await world.locker()]
    const first = task()
    const lost = processOf(dying, shelf)(first.start).catch(() => 'dead')
    await first.begun
    world.kill(dying)
    let second: string | undefined
    const waiter = processOf(living, shelf, { waitMs: Number.POSITIVE_INFINITY })(() => 'of the second').then(
      (value) => {
        second = value
      },
    )
    await world.until('the waiter has it', () => second !== undefined)
    await waiter
    expect(second).toBe('of the second')
    // The dead process, had it only been paused: it knows that its lease is over, and does not store.
    first.end('of the first')
    await lost
    expect(shelf.value).toBe('of the second')
  })

  stage.test(
    'G5 a stale computation does not overwrite a newer result where the store checks fences',
    async (world) => {
      for (const checksFences of [true, false]) {
        const shelf = Object.assign(new Shelf(), { checksFences })
        const [stale, fresh] = [await world.locker(), await world.locker()]
        // The pause comes after the last look at the lease: in the middle of `set`.
        const paused = Promise.withResolvers<void>()
        const goOn = Promise.withResolvers<void>()
        const store = shelf.client()
        const slow: typeof store = {
          get: (key) => store.get(key),
          set: async (key, result, options) => {
            paused.resolve()
            await goOn.promise
            return store.set(key, result, options)
          },
        }
        const late = processOf(stale, shelf)(() => 'old', { store: slow })
        await paused.promise
        await stale.forceRelease(`single-flight/${key}`, { all: true, reason: 'a test' })
        expect(await processOf(fresh, shelf)(() => 'new')).toBe('new')
        goOn.resolve()
        if (checksFences) {
          // Its caller gets the newer result.
          expect(await late).toBe('new')
          expect(shelf.refused).toHaveLength(1)
        } else await late.catch(() => {})
        expect(shelf.value).toBe(checksFences ? 'new' : 'old')
      }
    },
  )

  stage.test('an error goes to the caller that computed, and waiters try one at a time', async (world) => {
    const shelf = new Shelf()
    const first = task()
    const one = processOf(await world.locker(), shelf)
    const failing = one(first.start)
    await first.begun
    let inside = 0
    let most = 0
    const tries: string[] = []
    const others = []
    for (const name of ['b', 'c', 'd']) {
      const call = processOf(await world.locker(), shelf, { waitMs: Number.POSITIVE_INFINITY })
      others.push(
        call(async () => {
          most = Math.max(most, ++inside)
          tries.push(name)
          await Promise.resolve()
          inside--
          if (tries.length < 2) throw new Error(`of ${name}`)
          return `of ${name}`
        }).catch((error: Error) => error.message),
      )
    }
    first.fail(new Error('of the first'))
    await expect(failing).rejects.toThrow('of the first')
    let outcomes: readonly string[] | undefined
    Promise.all(others).then((all) => {
      outcomes = all
    })
    await world.until('all have an outcome', () => outcomes !== undefined)
    expect(most).toBe(1)
    // One more failed, the next one succeeded, and the last found its result.
    expect(tries).toHaveLength(2)
    expect(outcomes?.toSorted()).toEqual([`of ${tries[0]}`, `of ${tries[1]}`, `of ${tries[1]}`].toSorted())
    expect(shelf.value).toBe(`of ${tries[1]}`)
  })

  stage.test(
    'before its end one process computes anew, and the others go on with the old value',
    async (world) => {
      const shelf = new Shelf()
      const locker = await world.locker()
      // Stored half an hour ago.
      shelf.results.set(key, {
        text: JSON.stringify({ value: 'old', storedAtMs: locker.clock.wallMs() - keepMs / 2 }),
        token: 1n,
      })
      const early = { refreshBeforeMs: keepMs, random: () => 0.4 }
      const one = processOf(locker, shelf, early)
      const two = processOf(await world.locker(), shelf, early)
      const refresh = task()
      const refreshed = one(refresh.start)
      await refresh.begun
      // Callers of the same process, and of another one.
      expect(await one(never)).toBe('old')
      expect(await two(never)).toBe('old')
      // It is not the time of a caller with another chance.
      expect(await two(never, { random: () => 0.6 })).toBe('old')
      refresh.end('new')
      expect(await refreshed).toBe('new')
      expect(await two(never, { random: () => 0.6 })).toBe('new')
      expect(await locker.list()).toEqual([])
    },
  )

  stage.test('what takes longer than waitMs is a time-out that leaves nothing behind', async (world) => {
    const shelf = new Shelf()
    const [busy, waiting] = [await world.locker(), await world.locker()]
    const work = task()
    const computing = processOf(busy, shelf)(work.start)
    await work.begun
    await expect(processOf(waiting, shelf)(never, { waitMs: 0 })).rejects.toMatchObject({
      code: 'ACQUIRE_TIMEOUT',
    })
    work.end('done')
    expect(await computing).toBe('done')
    expect(await waiting.list()).toEqual([])
  })
})

function alone(more: object = {}) {
  const clock = createFakeClock()
  const plain = createLocker(memory({ clock }))
  const shelf = new Shelf()
  return { clock, plain, shelf, call: processOf(plain, shelf, more) }
}

test('callers of one process share one flight, with one look and one error', async () => {
  const { plain, shelf, call } = alone()
  await using _ = plain
  let computed = 0
  const values = await Promise.all(Array.from({ length: 50 }, () => call(() => `report ${++computed}`)))
  expect(new Set(values)).toEqual(new Set(['report 1']))
  // One before the lease, and one under it.
  expect(shelf.gets).toBe(2)
  shelf.results.clear()
  const error = new Error('no data')
  const failed = await Promise.allSettled([1, 2, 3].map(() => call(() => Promise.reject(error))))
  expect(failed.map((each) => each.status === 'rejected' && each.reason)).toEqual([error, error, error])
  expect(await call(() => 'again')).toBe('again')
  // Another store is another flight.
  expect(await processOf(plain, new Shelf())(() => 'elsewhere')).toBe('elsewhere')
})

test('a result is stale after keepMs, and not before', async () => {
  const { clock, plain, call } = alone()
  await using _ = plain
  expect(await call(() => 'one')).toBe('one')
  await clock.advance(keepMs - 10)
  expect(await call(never)).toBe('one')
  await clock.advance(20)
  expect(await call(() => 'two')).toBe('two')
})

test('the chance of an early computation grows to one', async () => {
  const { clock, plain, call } = alone({ refreshBeforeMs: 1_000 })
  await using _ = plain
  await call(() => 'one')
  await clock.advance(keepMs - 1_000)
  expect(await call(never, { random: () => 0 })).toBe('one')
  await clock.advance(500)
  expect(await call(never, { random: () => 0.5 })).toBe('one')
  expect(await call(() => 'two', { random: () => 0.49 })).toBe('two')
})

test('an onRefreshError that throws is an uncaught exception, and the caller gets the old value', async () => {
  const { clock, plain, call } = alone({ refreshBeforeMs: keepMs, random: () => 0 })
  await using _ = plain
  await call(() => 'one')
  await clock.advance(1)
  const others = process.listeners('uncaughtException')
  const thrown: unknown[] = []
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', (error) => thrown.push(error))
  try {
    const error = new Error('of the callback')
    const onRefreshError = () => {
      throw error
    }
    expect(await call(() => Promise.reject(new Error('no data')), { onRefreshError })).toBe('one')
    await new Promise((resolve) => setImmediate(resolve))
    expect(thrown).toEqual([error])
  } finally {
    process.removeAllListeners('uncaughtException')
    for (const listener of others) process.on('uncaughtException', listener)
  }
})

test('an early computation that fails leaves the old value, and tells', async () => {
  const { clock, plain, call } = alone({ refreshBeforeMs: keepMs, random: () => 0 })
  await using _ = plain
  await call(() => 'one')
  await clock.advance(1)
  const told: unknown[] = []
  const error = new Error('no data')
  expect(
    await call(() => Promise.reject(error), { onRefreshError: (each: unknown) => told.push(each) }),
  ).toBe('one')
  expect(await call(() => Promise.reject(error))).toBe('one')
  expect(told).toEqual([error])
  expect(await call(() => 'two')).toBe('two')
})

test('a caller that gives up leaves the others their flight; without callers, compute is told to stop', async () => {
  const { plain, call } = alone()
  await using _ = plain
  const [one, two] = [new AbortController(), new AbortController()]
  const reason = new Error('the client has gone')
  let told: AbortSignal | undefined
  const compute = ({ signal }: { signal: AbortSignal }) => {
    told = signal
    return new Promise<string>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  }
  const start = (signal: AbortSignal) => call(compute as never, { signal })
  const first = start(one.signal)
  const second = start(two.signal)
  while (told === undefined) await new Promise(setImmediate)
  one.abort(reason)
  await expect(first).rejects.toBe(reason)
  expect(told.aborted).toBe(false)
  two.abort(reason)
  await expect(second).rejects.toBe(reason)
  expect(told.aborted).toBe(true)
  await expect(start(AbortSignal.abort(reason))).rejects.toBe(reason)
  expect(await call(() => 'later')).toBe('later')
})

/** A computation that goes on after its only caller has given up. */
async function abandoned(call: ReturnType<typeof processOf>) {
  const client = new AbortController()
  const work = task()
  const left = call(work.start, { signal: client.signal })
  await work.begun
  client.abort(new Error('the client has gone'))
  await expect(left).rejects.toBe(client.signal.reason)
  return work
}

test('a caller that comes after all others have given up has its own compute', async () => {
  const { clock, plain, shelf, call } = alone()
  await using _ = plain
  const first = await abandoned(call)
  const own = task()
  const second = call(own.start)
  await clock.settle()
  // The first still computes, under its lease.
  expect(shelf.gets).toBe(3)
  first.fail(new Error('interrupted'))
  await own.begun
  const third = call(never)
  await clock.settle()
  // It has joined, so it has not looked.
  expect(shelf.gets).toBe(4)
  own.end('its own')
  expect(await Promise.all([second, third])).toEqual(['its own', 'its own'])
})

test('what another process has computed early is not computed again', async () => {
  const { clock, plain } = alone()
  await using _ = plain
  await clock.advance(1_000)
  const nowMs = clock.wallMs()
  const looks = [
    { value: 'old', storedAtMs: nowMs - 10 },
    { value: 'new', storedAtMs: nowMs },
  ]
  const store = { get: async () => looks.shift(), set: async () => {} }
  const options = { store, keepMs, refreshBeforeMs: keepMs, random: () => 0 }
  expect(await singleFlight(plain, key, options, never)).toBe('new')
})

test('a caller that gives up does not wait for its early computation', async () => {
  const { clock, plain, shelf, call } = alone({ refreshBeforeMs: keepMs, random: () => 0 })
  await using _ = plain
  await call(() => 'one')
  await clock.advance(1)
  const early = await abandoned(call)
  // It still computes, so no other call of this process does.
  expect(await call(never)).toBe('one')
  early.end('two')
  await clock.advance(1)
  expect(shelf.value).toBe('two')
  expect(await call(() => 'three')).toBe('three')
})

test('a lost lease without a newer result is an error that keeps what was computed', async () => {
  const { plain, shelf, call } = alone()
  await using _ = plain
  const losing = call((async ({ lease }: { lease: { renew(): Promise<void> } }) => {
    await plain.forceRelease(`single-flight/${key}`, { all: true, reason: 'a test' })
    await lease.renew().catch(() => {})
    return 'computed'
  }) as never)
  await expect(losing).rejects.toMatchObject({ code: 'LEASE_LOST' })
  expect(shelf.value).toBeUndefined()
})

test.each(['LEASE_LOST', 'FENCE_STALE'] as const)(
  'a %s of another lease with the same name is an error, also when the store has a newer result',
  async (code) => {
    const { plain, shelf, call } = alone()
    await using _ = plain
    await using elsewhere = createLocker(memory())
    const other = await elsewhere.acquire(`single-flight/${key}`)
    await other.release()
    const refused =
      code === 'FENCE_STALE'
        ? new FenceStaleError(other.fence, 9n)
        : await other.renew().catch((error) => error)
    expect(refused).toMatchObject({ code, ...(code === 'LEASE_LOST' && { leaseId: other.id }) })
    const asked = call(async () => {
      const text = JSON.stringify({ value: 'of another process', storedAtMs: plain.clock.wallMs() })
      shelf.results.set(key, { text, token: 99n })
      throw refused
    })
    await expect(asked).rejects.toBe(refused)
    // The lease itself is sound, so its own result would have counted.
    expect(await call(never)).toBe('of another process')
  },
)

test('errors of the store reach the caller', async () => {
  const { plain, shelf } = alone()
  await using _ = plain
  const error = new Error('store down')
  const store = { ...shelf.client(), set: () => Promise.reject(error) }
  await expect(singleFlight(plain, key, { store, keepMs }, () => 'value')).rejects.toBe(error)
  const blind = { ...shelf.client(), get: () => Promise.reject(error) }
  await expect(singleFlight(plain, key, { store: blind, keepMs }, never)).rejects.toBe(error)
  expect(await plain.list()).toEqual([])
})

test('what is wrong is refused before anything is asked', async () => {
  const { plain, shelf } = alone()
  await using _ = plain
  const store = shelf.client()
  const refused: [object | undefined, string][] = [
    [undefined, 'store'],
    [{ keepMs }, 'store'],
    [{ store: { get() {} }, keepMs }, 'store'],
    [{ store }, 'keepMs'],
    [{ store, keepMs: 0 }, 'keepMs'],
    [{ store, keepMs, refreshBeforeMs: keepMs + 1 }, 'refreshBeforeMs'],
    [{ store, keepMs, refreshBeforeMs: -1 }, 'refreshBeforeMs'],
    [{ store, keepMs, signal: {} }, 'signal'],
    [{ store, keepMs, random: 0.5 }, 'random'],
    [{ store, keepMs, onRefreshError: 'log' }, 'onRefreshError'],
    [{ store, keepMs, keepMS: 1 }, 'options'],
  ]
  for (const [options, argument] of refused)
    await expect(singleFlight(plain, key, options as never, never)).rejects.toMatchObject({ argument })
  await expect(singleFlight(plain, '', { store, keepMs }, never)).rejects.toMatchObject({ argument: 'key' })
  await expect(singleFlight(plain, key, { store, keepMs }, 5 as never)).rejects.toMatchObject({
    argument: 'compute',
  })
  await expect(singleFlight({} as never, key, { store, keepMs }, never)).rejects.toThrow(/must be a locker/)
  expect(shelf.gets).toBe(0)
  // Names that the engine would refuse are refused, too.
  await expect(singleFlight(plain, key, { store, keepMs, waitMs: -1 }, never)).rejects.toMatchObject({
    argument: 'waitMs',
  })
  for (const found of ['{"value":1}', { value: 1 }, { value: 1, storedAtMs: 'now' }, 5])
    await expect(
      singleFlight(plain, key, { store: { ...store, get: async () => found as never }, keepMs }, never),
    ).rejects.toThrow(/must return from get what set was given/)
})
