import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { livingPins, type Picture, planFor, quotas } from './quotas.ts'

const LABELS = ['a', 'b', 'c', 'd', 'gone'] as const

/** Members, what they hold now, and pins, also to labels that do not live. */
const pictures = fc
  .record({
    count: fc.integer({ min: 1, max: 40 }),
    weights: fc.array(fc.constantFrom(1, 1, 1, 2, 3, 7), { minLength: 1, maxLength: 7 }),
    // One holder for each partition; beyond the members, no one.
    holders: fc.array(fc.nat(9), { minLength: 40, maxLength: 40 }),
    pinned: fc.array(fc.tuple(fc.nat(39), fc.constantFrom(...LABELS)), { maxLength: 6 }),
  })
  .map(({ count, weights, holders, pinned }): Picture => {
    const members = weights.map((weight, at) => ({ id: `m${at}`, label: LABELS[at % 4] ?? '', weight }))
    const holdings = new Map(
      members.map(({ id }, at) => [id, holders.flatMap((by, p) => (by === at && p < count ? [p] : []))]),
    )
    return { count, members, holdings, pins: new Map(pinned.filter(([partition]) => partition < count)) }
  })

const sumOf = (numbers: Iterable<number>) => [...numbers].reduce((sum, each) => sum + each, 0)
const heldBy = ({ holdings }: Picture, id: string) => holdings.get(id) ?? []
const withoutPins = (picture: Picture): Picture => ({ ...picture, pins: new Map() })

function freeIn({ count, holdings }: Picture): number[] {
  const taken = new Set([...holdings.values()].flat())
  return Array.from({ length: count }, (_, partition) => partition).filter((each) => !taken.has(each))
}

/** All ways to give each member the floor or the ceiling of its share. */
function* evenSplits({ count, members }: Picture): Generator<number[]> {
  const weights = sumOf(members.map(({ weight }) => weight))
  const shares = members.map(({ weight }) => (count * weight) / weights)
  for (let bits = 0; bits < 2 ** members.length; bits++) {
    const split = shares.map((share, at) => ((bits >> at) & 1 ? Math.ceil(share) : Math.floor(share)))
    if (sumOf(split) === count) yield split
  }
}

describe('quotas', () => {
  test('all partitions are given out', () => {
    fc.assert(
      fc.property(pictures, (picture) => {
        expect(sumOf(quotas(picture).values())).toBe(picture.count)
      }),
    )
  })

  test('each is within one of its exact share', () => {
    fc.assert(
      fc.property(pictures.map(withoutPins), (picture) => {
        const weights = sumOf(picture.members.map(({ weight }) => weight))
        for (const { id, weight } of picture.members) {
          const exact = (picture.count * weight) / weights
          expect(Math.abs((quotas(picture).get(id) ?? 0) - exact)).toBeLessThan(1)
        }
      }),
    )
  })

  test('no even split moves fewer partitions', () => {
    fc.assert(
      fc.property(pictures.map(withoutPins), (picture) => {
        const held = picture.members.map(({ id }) => heldBy(picture, id).length)
        const moves = (split: readonly number[]) =>
          sumOf(split.map((quota, at) => Math.max(0, (held[at] ?? 0) - quota)))
        const fewest = Math.min(...[...evenSplits(picture)].map(moves))
        const own = quotas(picture)
        expect(moves(picture.members.map(({ id }) => own.get(id) ?? 0))).toBe(fewest)
      }),
    )
  })

  test('a living pin has room at its member, and the others stay even', () => {
    fc.assert(
      fc.property(pictures, (picture) => {
        const pins = [...livingPins(picture).values()]
        const own = quotas(picture)
        const pinnedTo = (id: string) => pins.filter((member) => member === id).length
        for (const { id } of picture.members) expect(own.get(id)).toBeGreaterThanOrEqual(pinnedTo(id))
        const roomy = picture.members.filter(({ id }) => (own.get(id) ?? 0) > pinnedTo(id))
        const perWeight = roomy.map(({ id, weight }) => [own.get(id) ?? 0, weight] as const)
        for (const [quota, weight] of perWeight)
          for (const [other, otherWeight] of perWeight)
            expect(quota / weight - other / otherWeight).toBeLessThan(1 / weight + 1 / otherWeight)
      }),
    )
  })
})

describe('plans', () => {
  /** Every member acts on a picture of its own time, in this order, until no one has anything to do. */
  function settle(picture: Picture, order: readonly number[]): { moves: number; rounds: number } {
    const holdings = new Map([...picture.holdings].map(([id, held]) => [id, [...held]]))
    const now = { ...picture, holdings }
    let [moves, rounds, isQuiet] = [0, 0, false]
    for (; !isQuiet && rounds < 20; rounds++) {
      isQuiet = true
      for (const at of order) {
        const { id } = picture.members[at % picture.members.length] ?? { id: '' }
        const mine = holdings.get(id) ?? []
        const { revoke, take } = planFor(now, id, mine, freeIn(now))
        moves += revoke.length
        holdings.set(id, [...mine.filter((each) => !revoke.includes(each)), ...take])
        if (revoke.length + take.length > 0) isQuiet = false
      }
    }
    const own = quotas(picture)
    for (const { id } of picture.members) expect(holdings.get(id)).toHaveLength(own.get(id) ?? 0)
    for (const [partition, id] of livingPins(picture)) expect(holdings.get(id)).toContain(partition)
    return { moves, rounds }
  }

  const orders = fc
    .array(fc.nat(6), { maxLength: 7 })
    .map((some) => [...some, ...Array.from({ length: 7 }, (_, at) => at)])

  test('everybody ends at its quota as it was at the beginning, and only surplus has moved', () => {
    fc.assert(
      fc.property(pictures, orders, (picture, order) => {
        const [own, pins] = [quotas(picture), livingPins(picture)]
        const surplus = picture.members.map(({ id }) => {
          const elsewhere = heldBy(picture, id).filter((each) => pins.has(each) && pins.get(each) !== id)
          const movable = heldBy(picture, id).filter((each) => !pins.has(each))
          const room = (own.get(id) ?? 0) - [...pins.values()].filter((member) => member === id).length
          return elsewhere.length + Math.max(0, movable.length - room)
        })
        const { moves, rounds } = settle(picture, order)
        expect(moves).toBe(sumOf(surplus))
        expect(rounds).toBeLessThanOrEqual(4)
      }),
    )
  })

  test('members that see the same picture do not race for the same partition', () => {
    fc.assert(
      fc.property(pictures, (picture) => {
        const taken = picture.members.flatMap(
          ({ id }) => planFor(picture, id, heldBy(picture, id), freeIn(picture)).take,
        )
        const lacking = picture.members.map(
          ({ id }) => planFor(picture, id, heldBy(picture, id), freeIn(picture)).lacks,
        )
        if (sumOf(lacking) <= freeIn(picture).length) expect(new Set(taken).size).toBe(taken.length)
      }),
    )
  })

  test('the newest go first', () => {
    const members = ['a', 'b'].map((id) => ({ id, label: id, weight: 1 }))
    const picture = { count: 4, members, holdings: new Map([['a', [0, 1, 2, 3]]]), pins: new Map() }
    expect(planFor(picture, 'a', [3, 1, 0, 2], []).revoke).toEqual([0, 2])
  })
})
