import { describe, test } from 'vitest'
import { checkLostUpdates } from './lost-updates.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

describe('no acknowledged update is lost', () => {
  const final = (fields: { total?: number; entries?: string[]; value?: string }) =>
    ({ kind: 'final', resource: 'n', ...fields }) as const

  test('a counter that is too low', () => {
    const story = new Story()
      .op('A', 'update', 0, 10, { delta: 1 })
      .op('B', 'update', 0, 10, { delta: 1 })
      .event(20, final({ total: 1 }))
    expectViolated(checkLostUpdates(story.history()), 'ends at 1 instead of 2', '1 are lost')
  })

  test('a counter that is too high, although one is unknown', () => {
    const story = new Story()
      .op('A', 'update', 0, 10, { delta: 1 })
      .op('B', 'update', 0, 10, { delta: 1, outcome: 'unknown' })
      .op('C', 'update', 0, 10, { delta: 1, outcome: 'fail' })
      .event(20, final({ total: 3 }))
    expectViolated(checkLostUpdates(story.history()), 'instead of 1 to 2', 'came from nowhere')
  })

  test('a log without an entry that was acknowledged', () => {
    const story = new Story().op('A', 'update', 0, 10, { entry: 'x' }).event(20, final({ entries: [] }))
    expectViolated(checkLostUpdates(story.history()), 'A update', '"x" is not in n')
  })

  test('a log with an entry twice', () => {
    const story = new Story()
      .op('A', 'update', 0, 10, { entry: 'x' })
      .event(20, final({ entries: ['x', 'x'] }))
    expectViolated(checkLostUpdates(story.history()), '2 times')
  })

  test('a log with an entry that failed', () => {
    const story = new Story()
      .op('A', 'update', 0, 10, { entry: 'x', outcome: 'fail' })
      .event(20, final({ entries: ['x'] }))
    expectViolated(checkLostUpdates(story.history()), 'although it failed')
  })

  test('a log with an entry from nowhere', () => {
    const story = new Story()
      .op('A', 'update', 0, 10, { entry: 'x' })
      .event(20, final({ entries: ['x', 'y'] }))
    expectViolated(checkLostUpdates(story.history()), '"y" that nobody wrote')
  })

  test('two updates that were based on the same value', () => {
    const story = new Story().op('A', 'update', 0, 10, { saw: '1' }).op('B', 'update', 5, 20, { saw: '1' })
    expectViolated(checkLostUpdates(story.history()), 'A update', 'B update', 'both based on "1"')
  })

  test('a register whose final value is not based on an acknowledged update', () => {
    const story = new Story()
      .op('A', 'update', 0, 10, { saw: '0', wrote: 'a' })
      .op('B', 'update', 20, 30, { saw: '0-again', wrote: 'b' })
      .event(40, final({ value: 'b' }))
    expectViolated(checkLostUpdates(story.history()), 'A update', 'it is lost')
  })

  test('good: exactly what was acknowledged, and exactly what was acknowledged with all the unknown', () => {
    for (const total of [1, 3]) {
      const story = new Story()
        .op('A', 'update', 0, 10, { delta: 1 })
        .op('B', 'update', 0, 10, { delta: 2, outcome: 'unknown' })
        .event(20, final({ total }))
      expectHeld(checkLostUpdates(story.history()))
    }
  })

  test('good: unknown ones may count or not, also if they take away', () => {
    const story = new Story()
      .op('A', 'update', 0, 10, { delta: 5 })
      .op('B', 'update', 0, 10, { delta: 2, outcome: 'unknown' })
      .op('C', 'update', 0, null, { delta: -3 })
      .event(20, final({ total: 2 }))
    expectHeld(checkLostUpdates(story.history()))
  })

  test('good: a chain through an unknown update, and a log that has one', () => {
    const story = new Story()
      .op('A', 'update', 0, 10, { saw: '0', wrote: 'a' })
      .op('B', 'update', 20, 30, { saw: 'a', wrote: 'b', outcome: 'unknown' })
      .op('C', 'update', 40, 50, { saw: 'b', wrote: 'c' })
      .event(60, final({ value: 'c' }))
      .op('A', 'update', 61, 70, { entry: 'x', outcome: 'unknown', resource: 'log' })
      .op('B', 'update', 61, 70, { entry: 'y', outcome: 'fail', resource: 'log' })
      .event(80, { kind: 'final', resource: 'log', entries: ['x'] })
    expectHeld(checkLostUpdates(story.history()))
  })

  test('without the final state, or without updates, there is nothing to judge', () => {
    expectNotJudged(
      checkLostUpdates(new Story().op('A', 'update', 0, 10, { delta: 1 }).history()),
      'final value',
    )
    expectNotJudged(
      checkLostUpdates(new Story().op('A', 'update', 0, 10, { entry: 'x' }).history()),
      'entries',
    )
    expectNotJudged(checkLostUpdates(new Story().op('A', 'update', 0, 10).history()), 'does not say')
    expectNotJudged(checkLostUpdates(new Story().acquire('A', 0, 10).history()), 'nothing was updated')
  })
})
