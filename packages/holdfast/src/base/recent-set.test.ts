import { expect, test } from 'vitest'
import { RecentSet } from './recent-set.ts'

test('a set of recent values forgets the one that was added longest ago, and no other', () => {
  const set = new RecentSet<number>(3)
  for (const value of [1, 2, 3, 1, 4]) set.add(value)
  expect([1, 2, 3, 4].filter((value) => set.has(value))).toEqual([1, 3, 4])
  set.delete(3)
  set.add(5)
  expect([1, 3, 4, 5].filter((value) => set.has(value))).toEqual([1, 4, 5])
  for (let value = 0; value < 1_000; value++) set.add(value)
  expect(set.size).toBe(3)
})
