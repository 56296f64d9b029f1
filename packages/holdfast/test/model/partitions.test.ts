/**
 * Members of partitions that join, leave and die at random, on the memory backend under the fake clock. A seed that fails is
 * in the name of its test.
 */
import { describe, expect, test } from 'vitest'
import type { FencedLease } from '../../src/base/types.ts'
import { MemoryEngine, memory } from '../../src/engines/memory/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import { type Partitions, partitions } from '../../src/recipes/partitions.ts'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import { type FaultyBackend, faultyBackend } from '../../src/testing/faulty-backend.ts'
import { seededRandom } from '../../src/testing/seeded-random.ts'

const TTL_MS = 1_000

interface Member {
  readonly wire: FaultyBackend<'fenced'>
  readonly at: Partitions<'fenced'>
  /** The leases that it works under. */
  readonly working: Map<number, FencedLease>
}

class Model {
  readonly clock = createFakeClock()
  readonly #engine = new MemoryEngine({ clock: this.clock })
  readonly #random
  readonly #all: Member[] = []
  readonly count: number
  living: Member[] = []
  moves = 0

  constructor(count: number, seed: number) {
    this.count = count
    this.#random = seededRandom(seed)
  }

  integer(most: number): number {
    return Math.floor(this.#random.fraction() * most)
  }

  get sizes(): number[] {
    return this.living.map(({ working }) => working.size)
  }

  async join(): Promise<void> {
    const wire = faultyBackend(memory({ engine: this.#engine, clock: this.clock, random: this.#random }))
    const locker = createLocker(wire, { ttlMs: TTL_MS })
    const working = new Map<number, FencedLease>()
    const at = await partitions(locker, {
      name: 'model',
      count: this.count,
      onAssigned: (partition, lease) => {
        for (const other of this.#all) {
          const theirs = other.working.get(partition)
          if (theirs?.state === 'held') throw new Error(`two believe to have partition ${partition}`)
        }
        working.set(partition, lease)
      },
      onRevoked: async (partition, reason) => {
        if (reason === 'moved') this.moves++
        await new Promise<void>((resolve) => this.clock.setTimer(this.integer(40), resolve))
        working.delete(partition)
      },
      // Of a member that is dead to the others; what the living do is judged by what they have.
      onError: () => {},
    })
    const member = { wire, at, working }
    this.#all.push(member)
    this.living.push(member)
  }

  async leave(): Promise<void> {
    void this.#pick().at.close()
  }

  async crash(): Promise<void> {
    this.#pick().wire.freeze()
  }

  #pick(): Member {
    const [member] = this.living.splice(this.integer(this.living.length), 1)
    if (member === undefined) throw new Error('no one lives')
    return member
  }

  /** The least that any rule can move, now that the members are these. */
  fewestMoves(): number {
    const floor = Math.floor(this.count / this.living.length)
    const larger = this.sizes.filter((size) => size > floor)
    const surplus = larger.reduce((sum, size) => sum + size - floor, 0)
    return surplus - Math.min(this.count % this.living.length, larger.length)
  }

  async quiet(): Promise<void> {
    await this.clock.advance(2.5 * TTL_MS)
    const floor = Math.floor(this.count / this.living.length)
    const expected = this.living.map((_, at) => (at < this.count % this.living.length ? floor + 1 : floor))
    expect(this.sizes.sort((a, b) => b - a)).toEqual(expected)
    const all = this.living.flatMap(({ working }) => [...working.keys()])
    expect(new Set(all).size).toBe(this.count)
  }

  lists(): number {
    return this.#all.reduce((sum, { wire }) => sum + wire.count('list'), 0)
  }
}

const changes = ['join', 'leave', 'crash'] as const

describe.each([1, 2, 3, 4, 5, 6])('seed %d', (seed) => {
  test('after each single change the shares are even, and the fewest partitions have moved', async () => {
    const model = new Model(31, seed)
    for (let members = 0; members < 3 + model.integer(5); members++) await model.join()
    await model.quiet()
    for (let step = 0; step < 12; step++) {
      const change = model.living.length < 3 ? 'join' : (changes[model.integer(3)] ?? 'join')
      model.moves = 0
      await model[change]()
      // No time has passed: a member that has joined holds nothing yet.
      const fewest = model.fewestMoves()
      await model.quiet()
      expect(model.moves, `moves after ${change}, step ${step}`).toBe(fewest)
    }
  })
})

test.each([11, 12, 13])(
  'seed %d: 3 to 50 members join and die at random, and no two ever believe',
  async (seed) => {
    const model = new Model(64, seed)
    const most = [8, 20, 50][seed % 3] ?? 50
    for (let round = 0; round < 2; round++) {
      for (let step = 0; step < most * 1.5; step++) {
        const grows = model.living.length < 4 || (model.living.length < most && model.integer(5) < 3)
        await model[grows ? 'join' : (changes[1 + model.integer(2)] ?? 'leave')]()
        await model.clock.advance(model.integer(300))
      }
      await model.quiet()
    }
  },
)

test('50 members and 256 partitions: a quiet member lists a few times in a TTL, and a change costs few lists more', async () => {
  const model = new Model(256, 1)
  for (let members = 0; members < 50; members++) await model.join()
  await model.quiet()
  const measure = async (act: () => Promise<void>) => {
    const before = model.lists()
    await act()
    await model.clock.advance(2 * TTL_MS)
    return (model.lists() - before) / model.living.length
  }
  expect(await measure(async () => {})).toBeLessThanOrEqual(8)
  expect(await measure(() => model.join())).toBeLessThanOrEqual(12)
  expect(await measure(() => model.leave())).toBeLessThanOrEqual(14)
  expect(await measure(() => model.crash())).toBeLessThanOrEqual(14)
})

test('T87 a member asks an engine that is down a few times in a TTL, and goes on when it is back', async () => {
  const model = new Model(8, 1)
  const errors: unknown[] = []
  const wire = faultyBackend(memory({ engine: new MemoryEngine({ clock: model.clock }), clock: model.clock }))
  const locker = createLocker(wire, { ttlMs: TTL_MS })
  const at = await partitions(locker, {
    name: 'model',
    count: 8,
    onAssigned: () => {},
    onRevoked: () => {},
    onError: (error) => errors.push(error),
  })
  await model.clock.advance(TTL_MS)
  expect(at.assigned.size).toBe(8)
  wire.cutOff()
  await model.clock.advance(2 * TTL_MS)
  expect(at.assigned.size).toBe(0)
  const before = wire.log.filter(({ kind }) => kind === 'list' || kind === 'openSession').length
  await model.clock.advance(10 * TTL_MS)
  const asked = wire.log.filter(({ kind }) => kind === 'list' || kind === 'openSession').length - before
  expect(asked).toBeGreaterThan(2)
  expect(asked).toBeLessThanOrEqual(80)
  expect(errors.length).toBeLessThanOrEqual(80)
  wire.restore()
  await model.clock.advance(2 * TTL_MS)
  expect(at.assigned.size).toBe(8)
  await at.close()
})
