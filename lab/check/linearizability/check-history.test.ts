import { describe, test } from 'vitest'
import { expectHeld, expectNotJudged, expectViolated } from '../testing/expectations.ts'
import { Story } from '../testing/story.ts'
import { checkHistoryLinearizable } from './check-history.ts'

const check = (story: Story) => checkHistoryLinearizable(story.history())

describe('a history whose operations cannot have taken effect one at a time', () => {
  test('a second holder, before the first had released or run out', () => {
    const story = new Story().acquire('A', 0, 10).acquire('B', 20, 30).release('A', 40, 50)
    expectViolated(check(story), 'on a mutex', 'a holds it', 'B acquire "n" [20 ms–30 ms]')
  })

  test('a late release that says it released, after the next had come and gone', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('B', 110, 120)
      .release('B', 130, 140)
      .release('A', 150, 160)
    expectViolated(check(story), 'a holds it', 'B acquire')
  })

  test('a token that is lower than the one before', () => {
    const story = new Story()
      .acquire('A', 0, 10, { token: 7n })
      .release('A', 20, 30)
      .acquire('B', 40, 50, { token: 6n })
    expectViolated(check(story), 'on a fenced mutex', 'the highest token is 7', 'token 6')
  })

  test('a writer beside a reader', () => {
    const story = new Story()
      .acquire('A', 0, 10, { mode: 'shared' })
      .acquire('B', 20, 30)
      .release('A', 40, 50)
    expectViolated(check(story), 'semaphore', 'B acquire')
  })

  test('a release of a lease that the engine had let expire', () => {
    const story = new Story({ engineTimes: 'exact' })
      .acquire('A', 0, 10)
      .engine(5, 'granted', 'a')
      .engine(100, 'expired', 'a')
      .release('A', 110, 120)
    expectViolated(check(story), 'A release')
  })

  test('a release of what nobody is known to have acquired', () => {
    const story = new Story().acquire('A', 0, 10).release('Z', 20, 30)
    expectViolated(check(story), 'Z release')
  })
})

describe('a history that only looks wrong', () => {
  test('the attempt had been granted before, and that grant was deleted before its owner heard of it', () => {
    const story = new Story({ engineTimes: 'exact' })
      .engine(5, 'granted', 'a', { token: 1n })
      .engine(20, 'deleted', 'a')
      .engine(30, 'granted', 'a', { token: 2n })
      .acquire('A', 0, 40, { token: 2n })
      .engine(55, 'released', 'a')
      .release('A', 50, 60)
    expectHeld(check(story))
  })

  test('the first one’s time was up, or its release is unknown, or an operator forced it', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('B', 50, 100)
      .release('B', 105, 106, { outcome: 'unknown' })
      .acquire('C', 90, 110)
      .op('operator', 'force-release', 112, 113)
      .acquire('D', 90, 115)
    expectHeld(check(story))
  })

  test('an unknown acquire that nobody ever saw again, and one that must have landed', () => {
    const story = new Story()
      .acquire('A', 0, 10, { outcome: 'unknown' })
      .acquire('B', 5, 20, { token: 3n })
      .release('B', 25, 30)
      .acquire('C', 26, 40, { outcome: 'unknown' })
      .release('C', 50, 60)
      .acquire('D', 55, 70, { token: 5n })
    expectHeld(check(story))
  })

  test('a release and the next acquire that end in the same moment; failed ones that never did anything', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('X', 1, 2, { outcome: 'fail' })
      .release('A', 20, 30)
      .acquire('B', 15, 30)
      .release('A', 31, 32, { outcome: 'fail' })
    expectHeld(check(story))
  })

  test('a name that was meddled with, and readers beside each other', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .event(15, { kind: 'meddled', note: 'FLUSHALL' })
      .acquire('B', 20, 30, { mode: 'shared', name: 'm' })
      .acquire('C', 21, 31, { mode: 'shared', name: 'm' })
      .acquire('D', 20, 40)
    expectHeld(check(story))
  })

  test('processes that re-enter, where they may', () => {
    const story = new Story()
      .acquire('A', 0, 10, { token: 3n })
      .acquire('A', 11, 12, { token: 3n })
      .release('A', 20, 30)
      .release('A', 31, 40)
      .acquire('B', 35, 50, { token: 4n })
    expectHeld(checkHistoryLinearizable(story.history(), { reentrantDepth: 2 }))
    expectViolated(check(story), 'on a fenced mutex')
    const tooDeep = new Story().acquire('A', 0, 1).acquire('A', 2, 3).acquire('A', 4, 5)
    expectViolated(checkHistoryLinearizable(tooDeep.history(), { reentrantDepth: 2 }), 'A holds it 2 times')
  })
})

test('what no model knows, and what nobody did, is not judged', () => {
  const resized = new Story()
    .acquire('A', 0, 1)
    .event(2, { kind: 'engine', what: 'resized', name: 'n', capacity: 9 })
  expectNotJudged(check(resized), 'resized')
  expectNotJudged(check(new Story()), 'nobody has acquired')
})
