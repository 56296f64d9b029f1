/** Refusals, and cases that only callbacks in the wrong order show. On every engine: `test/recipes/partitions.test.ts`. */
import { describe, expect, test } from 'vitest'
import { onEvent } from '../base/events.ts'
import type { Locker } from '../base/types.ts'
import { MemoryEngine, memory } from '../engines/memory/index.ts'
import { createLocker } from '../locker/locker.ts'
import { createFakeClock, type FakeClock } from '../testing/fake-clock.ts'
import { faultyBackend } from '../testing/faulty-backend.ts'
import { type PartitionsOptions, partitions } from './partitions.ts'

const TTL_MS = 1_000
const callbacks = { onAssigned: () => {}, onRevoked: () => {} }
const sound: PartitionsOptions<'fenced'> = { name: 'p', count: 4, ...callbacks }

async function withLockers(
  body: (locker: () => Locker<'fenced'>, clock: FakeClock) => Promise<void>,
): Promise<void> {
  const clock = createFakeClock()
  using engine = new MemoryEngine({ clock })
  const lockers: Locker<'fenced'>[] = []
  await body(() => {
    const locker = createLocker(memory({ engine, clock }), { ttlMs: TTL_MS })
    lockers.push(locker)
    return locker
  }, clock)
  await Promise.all(lockers.map((locker) => locker.close({ graceMs: 0 })))
  // Nothing of it is left in the process.
  expect(clock.pendingTimers).toBe(0)
}

describe('hostile input is refused', () => {
  const wrong: readonly (readonly [string, object, RegExp])[] = [
    ['no options', {}, /must be/],
    ['count 0', { count: 0 }, /count must be at least 1/],
    ['count 1.5', { count: 1.5 }, /count must be a whole number/],
    ['count 1e9', { count: 1e9 }, /count must be at most 4096/],
    ['count NaN', { count: Number.NaN }, /count must be a number/],
    ['count as text', { count: '4' }, /count must be a number/],
    ['weight 0', { weight: 0 }, /weight must be at least 1/],
    ['weight NaN', { weight: Number.NaN }, /weight must be a number/],
    ['weight 1.5', { weight: 1.5 }, /weight must be a whole number/],
    ['weight Infinity', { weight: Number.POSITIVE_INFINITY }, /weight must be finite/],
    ['a pin beyond the count', { pin: { 4: 'a' } }, /pin has "4", and partitions are 0 to 3/],
    ['a negative pin', { pin: { [-1]: 'a' } }, /pin has "-1"/],
    ['a pin in words', { pin: { one: 'a' } }, /pin has "one"/],
    ['a pin to nothing', { pin: { 1: '' } }, /pin of 1 must be the label/],
    ['pins as a list', { pin: ['a'] }, /pin must be an object/],
    ['an unknown option', { wieght: 2 }, /has no option "wieght"/],
    ['an empty name', { name: '' }, /name must not be empty/],
    ['a name with an empty segment', { name: 'a//b' }, /empty segments/],
    ['a name without room', { name: 'n'.repeat(245) }, /at most 255 bytes/],
    ['no onAssigned', { onAssigned: undefined }, /onAssigned must be a function/],
    ['onRevoked as text', { onRevoked: 'stop' }, /onRevoked must be a function/],
    ['onError as text', { onError: 'log' }, /onError must be a function/],
    ['a signal that is none', { signal: {} }, /signal must be an AbortSignal/],
    ['a TTL of 0', { ttlMs: 0 }, /ttlMs must be at least/],
  ]

  test.each(wrong)('%s', (what, options, message) =>
    withLockers(async (locker) => {
      const given = what === 'no options' ? undefined : { ...sound, ...options }
      await expect(partitions(locker(), given as never)).rejects.toThrow(message)
    }),
  )

  test('what is not a locker', async () => {
    await expect(partitions({} as never, sound)).rejects.toThrow(/must be a locker/)
  })

  test('a locker without fencing tokens, unless it is asked for', () =>
    withLockers(async (locker) => {
      const base = locker()
      const unfenced = new Proxy(base, {
        get: (target, key) => {
          if (key === 'info') return { ...target.info, name: 'acme', fencing: 'unfenced' }
          const value: unknown = Reflect.get(target, key)
          return typeof value === 'function' ? value.bind(target) : value
        },
      })
      await expect(partitions(unfenced, sound)).rejects.toThrow(
        /partitions cannot run on acme, which issues no/,
      )
      const member = await partitions(unfenced, { ...sound, allowUnfenced: true })
      await member.close()
    }))

  test('leases of others below its name do no harm', () =>
    withLockers(async (locker, clock) => {
      const other = locker()
      const theirs = [
        await other.acquire('p/member', { mode: 'shared', note: '{"count":"many"}' }),
        await other.acquire('p/partition/1', { note: 'mine' }),
        await other.acquire('p/partition/x'),
        await other.acquire('p/partition/02'),
        await other.acquire('p/partition/0x3'),
      ]
      const member = await partitions(locker(), sound)
      await clock.advance(TTL_MS)
      expect([...member.assigned.keys()]).toEqual([0, 2, 3])
      await member.close()
      expect(theirs.map(({ state }) => state)).toEqual(theirs.map(() => 'held'))
    }))
})

describe('callbacks', () => {
  test('onRevoked waits for onAssigned', () =>
    withLockers(async (locker, clock) => {
      const starting = Promise.withResolvers<void>()
      const told: string[] = []
      const member = await partitions(locker(), {
        ...sound,
        count: 1,
        onAssigned: () => starting.promise,
        onRevoked: () => void told.push('revoked'),
      })
      await clock.advance(100)
      const closed = member.close()
      await clock.advance(100)
      expect(told).toEqual([])
      starting.resolve()
      await closed
      expect(told).toEqual(['revoked'])
    }))

  test('a lost partition is not assigned again before its onRevoked has settled', () =>
    withLockers(async (locker, clock) => {
      const stopping = Promise.withResolvers<void>()
      const told: string[] = []
      const own = locker()
      const member = await partitions(own, {
        ...sound,
        count: 1,
        onAssigned: () => void told.push('assigned'),
        onRevoked: (_, reason) => {
          told.push(reason)
          return stopping.promise
        },
      })
      await clock.advance(100)
      await own.forceRelease('p/partition/0', { all: true, reason: 'a test' })
      await clock.advance(5 * TTL_MS)
      expect(told).toEqual(['assigned', 'lost'])
      stopping.resolve()
      await clock.advance(TTL_MS)
      expect(told).toEqual(['assigned', 'lost', 'assigned'])
      await member.close()
    }))

  test('one that closes the member ends the work that it has just begun', () =>
    withLockers(async (locker, clock) => {
      const told: string[] = []
      const left = new AbortController()
      await partitions(locker(), {
        ...sound,
        count: 1,
        signal: left.signal,
        onAssigned: () => left.abort(),
        onRevoked: (_, reason) => void told.push(reason),
      })
      await clock.advance(100)
      expect(told).toEqual(['closed'])
    }))

  const unfit: readonly (readonly [string, () => void | Promise<void>])[] = [
    [
      'throws',
      () => {
        throw new Error('cannot log')
      },
    ],
    ['rejects', () => Promise.reject(new Error('cannot log'))],
    [
      'throws what has no text',
      () => {
        throw Object.create(null)
      },
    ],
  ]
  // A rejection that is not handled would fail the run.
  test.each(unfit)('onError that %s is a warning, and breaks nothing', (_, onError) =>
    withLockers(async (locker, clock) => {
      const warnings: string[] = []
      const unsubscribe = onEvent('warning', ({ warning }) => warnings.push(warning))
      const member = await partitions(locker(), {
        ...sound,
        onAssigned: (partition) => {
          if (partition === 0) throw new Error('cannot start')
        },
        onError,
      })
      await clock.advance(100)
      expect([...member.assigned.keys()]).toEqual([1, 2, 3])
      await member.close()
      unsubscribe()
      expect(warnings.join()).toMatch(/onError failed/)
    }),
  )
})

/** Counts the calls of `list`. */
function countingLists(locker: Locker<'fenced'>): { readonly counting: Locker<'fenced'>; lists: number } {
  const counted = {
    lists: 0,
    counting: new Proxy(locker, {
      get: (target, key) => {
        if (key === 'list') counted.lists++
        const value: unknown = Reflect.get(target, key)
        return typeof value === 'function' ? value.bind(target) : value
      },
    }),
  }
  return counted
}

test('a member that has its share does not list when partitions of others change', () =>
  withLockers(async (locker, clock) => {
    const quiet = locker()
    const counted = countingLists(quiet)
    const members = [await partitions(counted.counting, sound), await partitions(locker(), sound)]
    await clock.advance(TTL_MS)
    const [partition] = members[1]?.assigned.keys() ?? []
    counted.lists = 0
    for (let times = 0; times < 10; times++) {
      await quiet.forceRelease(`p/partition/${partition}`, { all: true, reason: 'a test' })
      await clock.advance(TTL_MS / 2)
    }
    expect(counted.lists).toBeLessThanOrEqual(16)
    await Promise.all(members.map((member) => member.close()))
  }))

test('a partition that arrives after the member has fallen out is taken again by the new one', async () => {
  const clock = createFakeClock()
  using engine = new MemoryEngine({ clock })
  const wire = faultyBackend(memory({ engine, clock }))
  await using locker = createLocker(wire, { ttlMs: TTL_MS })
  wire.next('tryAcquire', { kind: 'late-reply', ms: 0.6 * TTL_MS })
  const member = await partitions(locker, { ...sound, count: 1 })
  await clock.advance(10)
  await locker.forceRelease('p/member', { all: true, reason: 'a test' })
  await clock.advance(2 * TTL_MS)
  expect(member.assigned.size).toBe(1)
  const [members, partition] = await locker.list('p/')
  expect(partition?.holders[0]?.owner).toBe(members?.holders[0]?.id)
  await member.close()
})

test('while nothing happens, a member lists rarely; a change is seen all the same', () =>
  withLockers(async (locker, clock) => {
    const counted = countingLists(locker())
    const member = await partitions(counted.counting, sound)
    const other = await partitions(locker(), sound)
    await clock.advance(2 * TTL_MS)
    counted.lists = 0
    await clock.advance(20 * TTL_MS)
    // Of 60 looks.
    expect(counted.lists).toBeGreaterThan(0)
    expect(counted.lists).toBeLessThanOrEqual(7)
    const [partition] = other.assigned.keys()
    counted.lists = 0
    await locker().forceRelease(`p/partition/${partition}`, { all: true, reason: 'a test' })
    await clock.advance(TTL_MS)
    expect(counted.lists).toBeGreaterThan(0)
    await other.close()
    await clock.advance(TTL_MS)
    expect(member.assigned.size).toBe(4)
    await member.close()
  }))

test('without events, a member sees within a TTL that another has left, and that a partition of its own was lost', () =>
  withLockers(async (locker, clock) => {
    const real = locker()
    const deaf = new Proxy(real, {
      get: (target, key) => {
        if (key === 'watch')
          return async function* (_prefix: string, { signal }: { signal: AbortSignal }) {
            await new Promise((resolve) => signal.addEventListener('abort', resolve))
          }
        const value: unknown = Reflect.get(target, key)
        return typeof value === 'function' ? value.bind(target) : value
      },
    })
    const member = await partitions(deaf, sound)
    const other = await partitions(locker(), sound)
    // The tenth look, a whole one, is over.
    await clock.advance(4 * TTL_MS)
    expect(member.assigned.size).toBe(2)
    const [partition] = member.assigned.keys()
    await real.forceRelease(`p/partition/${partition}`, { all: true, reason: 'a test' })
    await clock.advance(1.5 * TTL_MS)
    expect(member.assigned.size).toBe(2)
    await clock.advance(TTL_MS)
    await other.close()
    await clock.advance(TTL_MS)
    expect(member.assigned.size).toBe(4)
    await member.close()
  }))

describe('leaving', () => {
  test('the locker is closed first: all work is stopped as lost, and the member ends', () =>
    withLockers(async (locker, clock) => {
      const reasons: string[] = []
      const own = locker()
      const member = await partitions(own, { ...sound, onRevoked: (_, reason) => void reasons.push(reason) })
      await clock.advance(100)
      await own.close({ graceMs: 0 })
      await clock.advance(2 * TTL_MS)
      expect(reasons).toEqual(['lost', 'lost', 'lost', 'lost'])
      await member.close()
    }))

  test('while the locker drains, the work goes on and nothing is taken; when it has drained, the member ends', () =>
    withLockers(async (locker, clock) => {
      const reasons: string[] = []
      const own = locker()
      const member = await partitions(own, { ...sound, onRevoked: (_, reason) => void reasons.push(reason) })
      const other = await partitions(locker(), sound)
      await clock.advance(2 * TTL_MS)
      expect(reasons).toEqual(['moved', 'moved'])
      const closed = own.close({ drainMs: 10 * TTL_MS, graceMs: 0 })
      await other.close()
      await clock.advance(5 * TTL_MS)
      expect([reasons.length, member.assigned.size]).toEqual([2, 2])
      await clock.advance(5 * TTL_MS)
      await closed
      expect(reasons.slice(2)).toEqual(['lost', 'lost'])
      await clock.advance(TTL_MS)
      // No close of the member: `withLockers` finds timers that are left.
    }))

  test('a signal that has aborted before does not even join', () =>
    withLockers(async (locker) => {
      const reason = new Error('too late')
      const signal = AbortSignal.abort(reason)
      await expect(partitions(locker(), { ...sound, signal })).rejects.toBe(reason)
    }))

  test('a partition is free as soon as its own work has stopped, whatever the others do', () =>
    withLockers(async (locker, clock) => {
      const stopping = Promise.withResolvers<void>()
      const leaver = await partitions(locker(), {
        ...sound,
        onRevoked: (partition) => (partition === 0 ? stopping.promise : undefined),
      })
      await clock.advance(100)
      const closed = leaver.close()
      const next = await partitions(locker(), sound)
      await clock.advance(100)
      expect([...next.assigned.keys()].sort()).toEqual([1, 2, 3])
      // A member that is still leaving has a say in the count.
      await expect(partitions(locker(), { ...sound, count: 5 })).rejects.toThrow(/count is 5 here, and 4 at/)
      stopping.resolve()
      await closed
      await clock.advance(TTL_MS)
      expect(next.assigned.size).toBe(4)
      await next.close()
    }))
})
