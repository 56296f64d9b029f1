import { expect, test } from 'vitest'
import { intervalOfMedian, judge, overall } from './statistics.ts'

/** In no order, so that nothing depends on it. */
function around(middle: number, step: number, count = 15): number[] {
  const ratios = Array.from({ length: count }, (_, index) => middle + (index - (count - 1) / 2) * step)
  return [...ratios.filter((_, index) => index % 2 === 0), ...ratios.filter((_, index) => index % 2 === 1)]
}

test('the interval leaves out as many on each side as the binomial distribution allows', () => {
  const upTo = (count: number) => Array.from({ length: count }, (_, index) => index + 1)
  // From tables of the sign test.
  expect(intervalOfMedian(upTo(6))).toEqual([1, 6])
  expect(intervalOfMedian(upTo(15))).toEqual([4, 12])
  expect(intervalOfMedian(upTo(25))).toEqual([8, 18])
  expect(() => intervalOfMedian(upTo(5))).toThrow('5 values have no 95 % interval')
})

test('the interval contains the true median about as often as it says', () => {
  // The middle of the unit interval, and as many points as make the chance plain; a fixed sequence, not a random one.
  let state = 1
  const next = () => {
    state = (state * 48_271) % 2_147_483_647
    return state / 2_147_483_647
  }
  const runs = 2_000
  const hits = Array.from({ length: runs }, () => intervalOfMedian(Array.from({ length: 15 }, next))).filter(
    ([low, high]) => low <= 0.5 && high >= 0.5,
  )
  expect(hits.length / runs).toBeGreaterThan(0.95)
  expect(hits.length / runs).toBeLessThan(0.98)
})

test('a median of 0.95 or more passes, and less fails', () => {
  expect(judge(around(1, 0.01))).toMatchObject({ ratio: 1, verdict: 'pass' })
  expect(judge(around(0.95, 0)).verdict).toBe('pass')
  expect(judge(around(0.949, 0.01)).verdict).toBe('fail')
  expect(judge(around(1.4, 0.01)).verdict).toBe('pass')
})

test('an interval of more than 10 % on one side makes it void, whatever the median is', () => {
  expect(judge(around(1, 0.03)).verdict).toBe('void')
  expect(judge(around(0.5, 0.02)).verdict).toBe('void')
  // Three wild rounds on a side are outside the interval.
  expect(judge([...around(1, 0.01, 12), 0.1, 0.2, 9]).verdict).toBe('pass')
  expect(judge([...around(1, 0, 11), 0.1, 0.2, 0.3, 0.4]).verdict).toBe('void')
  expect(judge([...around(1, 0.01, 14), Number.NaN]).verdict).toBe('void')
})

test('one that is slower fails the run, one that is too noisy makes it void', () => {
  expect(overall(['pass', 'pass'])).toBe('pass')
  expect(overall(['pass', 'void'])).toBe('void')
  expect(overall(['void', 'fail', 'pass'])).toBe('fail')
  expect(overall([])).toBe('void')
})
