/** Partitions on every engine: who gets what, what moves, and in which order. */
import { expect } from 'vitest'
import { onEvent } from '../../src/base/events.ts'
import type { FencedLease, Locker } from '../../src/base/types.ts'
import { type Partitions, type PartitionsOptions, partitions } from '../../src/recipes/partitions.ts'
import { describeRecipe, type RecipeWorld } from './worlds.ts'

interface Member {
  readonly locker: Locker<'fenced'>
  readonly at: Partitions<'fenced'>
  /** Calls of its callbacks, in order: `+3`, `-3 moved`. */
  readonly told: string[]
  /** The work that runs: from the start of `onAssigned` to the end of `onRevoked`. */
  readonly working: Set<number>
}

/** Members of one set of partitions, and what all of them were told. */
class Crowd {
  readonly #world: RecipeWorld
  readonly #count: number
  readonly living: Member[] = []
  /** The fences with which each partition was worked on. */
  readonly tokens = new Map<number, bigint[]>()

  constructor(world: RecipeWorld, count: number) {
    this.#world = world
    this.#count = count
  }

  async join(
    options: Partial<PartitionsOptions<'fenced'>> & { readonly holder?: string } = {},
  ): Promise<Member> {
    const { holder, onAssigned, onRevoked, ...rest } = options
    const locker = await this.#world.locker(holder === undefined ? {} : { holder })
    const [told, working] = [[] as string[], new Set<number>()]
    const at = await partitions(locker, {
      name: 'shards',
      count: this.#count,
      // An engine in real time may be late on a fake clock.
      onError: () => {},
      ...rest,
      onAssigned: async (partition, lease) => {
        told.push(`+${partition}`)
        await onAssigned?.(partition, lease)
        this.#worksOn(partition, lease)
        working.add(partition)
      },
      onRevoked: async (partition, reason) => {
        told.push(`-${partition} ${reason}`)
        try {
          await onRevoked?.(partition, reason)
        } finally {
          working.delete(partition)
        }
      },
    })
    const member = { locker, at, told, working }
    this.living.push(member)
    return member
  }

  #worksOn(partition: number, lease: FencedLease): void {
    expect(lease.state).toBe('held')
    for (const { working, at } of this.living)
      if (working.has(partition) && at.assigned.get(partition) !== lease)
        throw new Error(`two members work on ${partition}`)
    const tokens = this.tokens.get(partition) ?? []
    expect(lease.fence.token).toBeGreaterThan(tokens.at(-1) ?? 0n)
    this.tokens.set(partition, [...tokens, lease.fence.token])
  }

  kill(member: Member): void {
    this.#world.kill(member.locker)
    this.living.splice(this.living.indexOf(member), 1)
  }

  async leave(member: Member): Promise<void> {
    this.living.splice(this.living.indexOf(member), 1)
    await member.at.close()
  }

  /** How many partitions the members have, the most first. */
  get #sizes(): number[] {
    return this.living.map(({ working }) => working.size).sort((a, b) => b - a)
  }

  async settles(...sizes: number[]): Promise<void> {
    await this.#world.until(`the members have ${sizes}`, () => String(this.#sizes) === String(sizes))
    const all = this.living.flatMap(({ working }) => [...working])
    expect(all.sort((a, b) => a - b)).toEqual(Array.from({ length: this.#count }, (_, each) => each))
  }
}

const movesOf = (members: readonly Member[]) =>
  members.flatMap(({ told }) => told.filter((each) => each.includes('moved'))).length

describeRecipe('partitions', (stage) => {
  stage.test('members that join and leave share all partitions, and only surplus moves', async (world) => {
    const crowd = new Crowd(world, 7)
    const first = await crowd.join()
    await crowd.settles(7)
    const second = await crowd.join()
    await crowd.settles(4, 3)
    const third = await crowd.join()
    await crowd.settles(3, 2, 2)
    expect(movesOf([first, second, third])).toBe(5)

    const had = second.working.size
    await crowd.leave(second)
    await crowd.settles(4, 3)
    expect(second.told.filter((each) => each.endsWith('closed'))).toHaveLength(had)
    expect(second.at.assigned.size).toBe(0)
    expect(movesOf([first, second, third])).toBe(5)

    await crowd.leave(first)
    await crowd.leave(third)
    expect(await (await world.locker()).list('shards/')).toEqual([])
  })

  stage.test('a crashed member’s partitions go to the others, and nothing else moves', async (world) => {
    const crowd = new Crowd(world, 6)
    const first = await crowd.join()
    const second = await crowd.join()
    const third = await crowd.join()
    await crowd.settles(2, 2, 2)
    const moves = movesOf([first, third])
    const before = [...first.working, ...third.working]
    crowd.kill(second)
    await crowd.settles(3, 3)
    expect([...first.working, ...third.working]).toEqual(expect.arrayContaining(before))
    expect(movesOf([first, third])).toBe(moves)
  })

  stage.test('T53 in a planned move the work has stopped before another member starts', async (world) => {
    const crowd = new Crowd(world, 4)
    const stopping = Promise.withResolvers<void>()
    const warnings: string[] = []
    const unsubscribe = onEvent('warning', ({ warning }) => warnings.push(warning))
    const first = await crowd.join({ onRevoked: () => stopping.promise })
    await crowd.settles(4)
    const second = await crowd.join()
    const stops = () => first.told.filter((each) => each.endsWith('moved')).length
    await world.until('two are to be stopped', () => stops() === 2)
    await world.passTime(world.ttlMs * 1.1)
    expect(second.working.size).toBe(0)
    expect(first.working.size).toBe(4)
    unsubscribe()
    expect(warnings.join()).toMatch(/"shards": onRevoked of partition \d has not settled/)
    stopping.resolve()
    await crowd.settles(2, 2)
  })

  stage.test(
    'weights are shares, and a pinned partition is with its member while it lives',
    async (world) => {
      const crowd = new Crowd(world, 8)
      const pin = { 5: 'big' }
      const small = await crowd.join({ pin, holder: 'small' })
      await crowd.settles(8)
      const big = await crowd.join({ pin, holder: 'big', weight: 3 })
      await crowd.settles(6, 2)
      expect(big.working.size).toBe(6)
      expect([...big.working]).toContain(5)
      await crowd.leave(big)
      await crowd.settles(8)
      expect([...small.working]).toContain(5)
    },
  )

  stage.test('a lost lease is told as such, and the member goes on', async (world) => {
    const crowd = new Crowd(world, 3)
    const only = await crowd.join()
    await crowd.settles(3)
    await only.locker.forceRelease('shards/partition/1', { all: true, reason: 'a test' })
    await world.until('it is told', () => only.told.includes('-1 lost'))
    await crowd.settles(3)
    expect(only.told.filter((each) => each === '+1')).toHaveLength(2)

    await only.locker.forceRelease('shards/member', { all: true, reason: 'a test' })
    await world.until('all is stopped', () => only.told.filter((each) => each.includes('moved')).length === 3)
    await crowd.settles(3)
  })

  stage.test('a callback that fails is told, and its partition is tried again', async (world) => {
    const crowd = new Crowd(world, 2)
    const errors: string[] = []
    let fails = true
    const first = await crowd.join({
      onError: (error, partition) => errors.push(`${partition}: ${String(error)}`),
      onAssigned: (partition) => {
        if (partition === 1 && fails) throw new Error('cannot start')
      },
      onRevoked: () => Promise.reject(new Error('cannot stop')),
    })
    await world.until('it has failed', () => errors.length > 0)
    expect(errors).toEqual(['1: Error: cannot start'])
    expect([...first.working]).toEqual([0])
    fails = false
    await crowd.settles(2)
    expect(first.told).not.toContain('-1 moved')

    await crowd.join()
    await world.until('the other has one', () => crowd.living[1]?.working.size === 1)
    expect(errors.at(-1)).toMatch(/^[01]: Error: cannot stop$/)
  })

  stage.test('a member that disagrees on the count is refused, and disturbs nothing', async (world) => {
    const crowd = new Crowd(world, 4)
    const first = await crowd.join({ holder: 'one' })
    await crowd.settles(4)
    await expect(crowd.join({ count: 8 })).rejects.toThrow(/count is 8 here, and 4 at "one"/)
    await world.passTime(world.ttlMs / 2)
    expect(first.told).toHaveLength(4)
  })
})
