import { describe, expect, test } from 'vitest'
import { createFakeClock } from '../testing/fake-clock.ts'
import { type PolledKeys, PolledWatches } from './polled-watches.ts'

type Told = ['changed' | 'lost', string | undefined]

/** An engine whose polls are answered by the test. */
class Engine {
  readonly clock = createFakeClock()
  readonly polls: {
    readonly group: string | null
    readonly index: bigint
    answer(index: bigint, keys?: Record<string, bigint | null>, seen?: string): Promise<void>
    fail(): Promise<void>
  }[] = []
  readonly stops = new Map<Told[], () => void>()
  /** All that were ever sent. */
  sent = 0
  readonly watches: PolledWatches<string>

  constructor(maxGroups = 2) {
    this.watches = new PolledWatches({
      clock: this.clock,
      maxGroups,
      groupOf: (key) => key.slice(0, key.indexOf('/') + 1),
      poll: (group, index) =>
        new Promise((resolve, reject) => {
          this.sent++
          const settle = async (finish: () => void) => {
            this.polls.splice(this.polls.indexOf(poll), 1)
            finish()
            for (let turns = 0; turns < 10; turns++) await Promise.resolve()
          }
          const poll = {
            group,
            index,
            answer: (next: bigint, keys: Record<string, bigint | null> = {}, seen?: string) => {
              const answer: PolledKeys<string> = { index: next, keys: new Map(Object.entries(keys)) }
              return settle(() => resolve(seen === undefined ? answer : { ...answer, seen }))
            },
            fail: () => settle(() => reject(new Error('no'))),
          }
          this.polls.push(poll)
        }),
    })
  }

  watch(version: bigint, ...keys: readonly (string | readonly [string, 'changed'])[]): Told[] {
    const watched = keys.map((key) =>
      typeof key === 'string' ? ({ key, until: 'deleted' } as const) : { key: key[0], until: key[1] },
    )
    const told: Told[] = []
    const stop = this.watches.watch(watched, version, (wake, seen) => told.push([wake, seen]))
    this.stops.set(told, stop)
    return told
  }

  async pass(ms: number): Promise<void> {
    await this.clock.advance(ms)
  }

  only() {
    const [poll, ...others] = this.polls
    if (poll === undefined || others.length > 0) throw new Error(`${this.polls.length} polls are in flight`)
    return poll
  }
}

describe('polled watches', () => {
  test('a watch is told when its key has gone, with the snapshot, and once', async () => {
    const engine = new Engine()
    const told = engine.watch(5n, 'x/own', 'x/older')
    expect(engine.only()).toMatchObject({ group: 'x/', index: 0n })
    await engine.only().answer(5n, { 'x/own': 5n, 'x/older': 4n })
    expect(told).toEqual([])
    await engine.pass(2)
    expect(engine.only().index).toBe(5n)
    await engine.only().answer(6n, { 'x/own': 5n }, 'snapshot')
    expect(told).toEqual([['changed', 'snapshot']])
    await engine.pass(10_000)
    expect(engine.polls).toEqual([])
    expect(engine.watches.count).toBe(0)
  })

  test('T19 a key that had gone before the watch began is told, from the snapshot that is there', async () => {
    const engine = new Engine()
    engine.watch(5n, 'x/own')
    await engine.only().answer(7n, { 'x/own': 5n, 'x/late': 6n })
    const told = engine.watch(6n, 'x/late', 'x/older')
    expect(told).toEqual([])
    await Promise.resolve()
    expect(told).toEqual([['changed', undefined]])
  })

  test('a snapshot that is older than the view of a watch says nothing to it', async () => {
    const engine = new Engine()
    engine.watch(5n, 'x/own')
    await engine.only().answer(5n, { 'x/own': 5n })
    const told = engine.watch(9n, 'x/new', 'x/own')
    await Promise.resolve()
    await engine.pass(2)
    await engine.only().answer(8n, { 'x/own': 5n })
    expect(told).toEqual([])
    await engine.pass(2)
    await engine.only().answer(9n, { 'x/own': 5n, 'x/new': 9n })
    expect(told).toEqual([])
    await engine.pass(2)
    await engine.only().answer(10n, { 'x/new': 9n })
    expect(told).toEqual([['changed', undefined]])
  })

  test('a key that was written again is told to those who watch for changes, and so is what is below a prefix', async () => {
    const engine = new Engine()
    const deleted = engine.watch(5n, 'x/own', 'x/a')
    const changed = engine.watch(5n, 'x/own', ['x/a', 'changed'])
    const below = engine.watch(5n, 'x/own', ['x/capacity/', 'changed'])
    await engine.only().answer(5n, { 'x/own': 5n, 'x/a': 4n })
    await engine.pass(2)
    await engine.only().answer(6n, { 'x/own': 5n, 'x/a': 6n })
    expect([deleted.length, changed.length, below.length]).toEqual([0, 1, 0])
    await engine.pass(2)
    await engine.only().answer(7n, { 'x/own': 5n, 'x/a': 6n, 'x/capacity/s': 7n })
    expect([deleted.length, changed.length, below.length]).toEqual([0, 1, 1])
  })

  test('T89 many watches share a few polls, and the last poll ends when nobody watches', async () => {
    const engine = new Engine(2)
    const all = ['a', 'b', 'c', 'd', 'e'].flatMap((group) =>
      [1, 2, 3].map((number) => engine.watch(5n, `${group}/own${number}`, `${group}/older`)),
    )
    expect(engine.polls.map(({ group }) => group)).toEqual(['a/', 'b/', null])
    for (const watch of all) engine.stops.get(watch)?.()
    for (const poll of [...engine.polls]) await poll.answer(6n)
    await engine.pass(10_000)
    expect([engine.polls.length, engine.watches.count]).toEqual([0, 0])
    expect(all.flat()).toEqual([])
    // There is room for another group now.
    engine.watch(5n, 'd/own')
    expect(engine.only().group).toBe('d/')
  })

  test('the poll of all groups tells what has gone; a change, only if keys of the group came or went', async () => {
    const engine = new Engine(0)
    const deleted = engine.watch(5n, 'x/own', 'x/older')
    const changed = engine.watch(5n, 'x/own', ['x/a', 'changed'])
    expect(engine.only().group).toBe(null)
    await engine.only().answer(50n, { 'x/own': null, 'x/older': null, 'x/a': null, 'y/own': null })
    await engine.pass(100)
    await engine.only().answer(51n, { 'x/own': null, 'x/older': null, 'x/a': null })
    expect([deleted.length, changed.length]).toEqual([0, 0])
    await engine.pass(100)
    await engine.only().answer(52n, { 'x/own': null, 'x/a': null })
    expect([deleted.length, changed.length]).toEqual([1, 1])
  })

  test('a watch that began while its poll was in flight belongs to it, and a group that is watched again keeps its poll', async () => {
    const engine = new Engine(1)
    const first = engine.watch(5n, 'x/own')
    engine.stops.get(first)?.()
    const second = engine.watch(5n, 'x/own')
    await engine.only().answer(6n, {})
    expect([first.length, second.length]).toEqual([0, 1])
  })

  test.each([0n, 4n])(
    'an index that is %i after 5: all watches are lost, and the poll begins anew',
    async (index) => {
      const engine = new Engine()
      const told = [engine.watch(5n, 'x/own'), engine.watch(5n, 'x/other')]
      await engine.only().answer(5n, { 'x/own': 5n, 'x/other': 5n })
      await engine.pass(2)
      await engine.only().answer(index, { 'x/own': 5n })
      expect(told).toEqual([[['lost', undefined]], [['lost', undefined]]])
      engine.watch(5n, 'x/own')
      await engine.pass(2)
      expect(engine.only().index).toBe(0n)
    },
  )

  test('T87 polls that fail come after growing pauses, from the same index, and nothing is missed', async () => {
    const engine = new Engine()
    const told = engine.watch(5n, 'x/own', 'x/older')
    await engine.only().answer(5n, { 'x/own': 5n, 'x/older': 4n })
    await engine.pass(2)
    for (let round = 0; round < 8; round++) {
      await engine.only().fail()
      expect(engine.polls).toEqual([])
      await engine.pass(Math.min(5_000, 200 * 2 ** round))
    }
    expect(engine.only().index).toBe(5n)
    await engine.only().answer(9n, { 'x/own': 5n })
    expect(told).toEqual([['changed', undefined]])
  })

  test('polls that are answered at once do not come faster than their pace', async () => {
    const engine = new Engine()
    engine.watch(5n, 'x/own')
    for (let index = 5n; index < 25n; index++) {
      await engine.only().answer(index, { 'x/own': 5n })
      expect(engine.polls).toEqual([])
      await engine.pass(2)
    }
    expect(engine.sent).toBe(21)
  })

  test('after the end nothing is polled, and nobody is told', async () => {
    const engine = new Engine()
    const told = engine.watch(5n, 'x/own')
    engine.watches.close()
    await engine.only().fail()
    await engine.pass(10_000)
    expect([engine.polls.length, told.length]).toEqual([0, 0])
  })
})
