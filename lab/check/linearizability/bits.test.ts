import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Bits } from './bits.ts'

test('two sets are written the same exactly if they have the same members, however they came to be', () => {
  const size = 200
  const index = fc.integer({ min: 0, max: size - 1 })
  // Mostly full sets with a few holes, as they are in a search.
  const members = fc
    .tuple(
      fc.integer({ min: 0, max: size }),
      fc.uniqueArray(index, { maxLength: 4 }),
      fc.uniqueArray(index, { maxLength: 4 }),
    )
    .map(([full, holes, more]) => {
      const set = new Set(Array.from({ length: full }, (_each, each) => each))
      for (const hole of holes) set.delete(hole)
      for (const each of more) set.add(each)
      return set
    })
  const detours = fc.array(index, { maxLength: 20 })
  fc.assert(
    fc.property(members, members, detours, (one, other, detour) => {
      const same = one.size === other.size && [...one].every((each) => other.has(each))
      expect(written(one, []) === written(other, detour)).toBe(same)
      expect(written(one, [])).toBe(written(one, detour))
    }),
    { numRuns: 2_000 },
  )

  function written(set: ReadonlySet<number>, detour: readonly number[]): string {
    const bits = new Bits(size)
    for (const each of set) bits.add(each)
    for (const each of detour) if (!set.has(each)) bits.add(each)
    for (const each of detour.toReversed()) if (!set.has(each)) bits.delete(each)
    const out: number[] = []
    const end = bits.write(out, 0)
    return out.slice(0, end).join()
  }
})

test('a long run of members costs nothing', () => {
  const bits = new Bits(100_000)
  for (let each = 1; each < 100_000; each++) bits.add(each)
  const out: number[] = []
  expect(bits.write(out, 0)).toBeLessThan(10)
})
