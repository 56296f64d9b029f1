import { describe, test } from 'vitest'
import { checkExclusion } from './g1-exclusion.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

const permits = (weight: number, capacity = 3) => ({ mode: 'permits', weight, capacity }) as const

describe('G1 by the engine’s own history', () => {
  test('two exclusive holders at once', () => {
    const story = new Story().engine(0, 'granted', 'a').engine(5, 'granted', 'b', { process: 'B' })
    expectViolated(checkExclusion(story.history()), 'b of B', 'granted at 5 ms', 'held by a')
  })

  test('a reader beside a writer', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', { mode: 'shared' })
      .engine(1, 'granted', 'b', { mode: 'shared' })
      .engine(2, 'granted', 'c', { mode: 'exclusive' })
    expectViolated(checkExclusion(story.history()), 'c (exclusively', 'a (shared', 'b (shared')
  })

  test('one permit too many', () => {
    const story = new Story().engine(0, 'granted', 'a', permits(2)).engine(1, 'granted', 'b', permits(2))
    expectViolated(checkExclusion(story.history()), 'b (2 of 3', 'did not fit')
  })

  test('a capacity that two clients disagree on', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', permits(1, 3))
      .engine(1, 'granted', 'b', permits(1, 5))
    expectViolated(checkExclusion(story.history()), 'it is 3')
  })

  test('one attempt that is granted twice, with two tokens', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', { token: 1n })
      .engine(1, 'granted', 'a', { token: 2n })
    expectViolated(checkExclusion(story.history()), 'twice')
  })

  test('a resize below what is held', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', permits(2))
      .event(1, { kind: 'engine', what: 'resized', name: 'n', capacity: 1 })
    expectViolated(checkExclusion(story.history()), 'resized to 1')
  })

  test('good: a hand-over in one instant, and the same grant told twice', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', { token: 1n })
      .engine(0, 'granted', 'a', { token: 1n })
      .engine(5, 'released', 'a')
      .engine(5, 'granted', 'b', { token: 2n })
      .engine(9, 'expired', 'b')
      .engine(9, 'granted', 'c', { token: 3n })
    expectHeld(checkExclusion(story.history()))
  })

  test('good: a resize that fits exactly; and a claim of which only the acquire says how much it is', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', permits(2))
      .event(1, { kind: 'engine', what: 'resized', name: 'n', capacity: 2 })
      .acquire('B', 2, 9, { mode: 'shared', name: 'm' })
      .acquire('C', 2, 9, { mode: 'shared', name: 'm' })
      .engine(3, 'granted', 'b', { name: 'm' })
      .engine(4, 'granted', 'c', { name: 'm' })
    expectHeld(checkExclusion(story.history()))
  })

  test('good: after a gap, nobody knows who held; a waiter that leaves is no holder that leaves', () => {
    const story = new Story()
      .engine(0, 'granted', 'a')
      .event(1, { kind: 'engine', what: 'gap' })
      .engine(2, 'granted', 'b')
      .engine(3, 'enqueued', 'c')
      .engine(4, 'left', 'c')
      .engine(5, 'deleted', 'b')
      .engine(6, 'granted', 'd')
    expectHeld(checkExclusion(story.history()), 'before a gap')
  })

  test('good: permits that fill it exactly, and names that have nothing to do with each other', () => {
    const story = new Story()
      .engine(0, 'granted', 'a', permits(1))
      .engine(1, 'granted', 'b', permits(2))
      .engine(2, 'granted', 'c', { name: 'other' })
    expectHeld(checkExclusion(story.history()))
  })
})

describe('G1 by what the clients saw', () => {
  test('a second acquire returns while the first has not been released', () => {
    const story = new Story().acquire('A', 0, 10).acquire('B', 5, 20).release('A', 30, 40)
    expectViolated(
      checkExclusion(story.history()),
      'B acquire "n" [5 ms–20 ms]',
      'A acquire "n" [0 ms–10 ms]',
    )
  })

  test('three readers, then a writer, before a reader’s time is up', () => {
    const story = new Story()
      .acquire('A', 0, 1, { mode: 'shared' })
      .acquire('B', 0, 2, { mode: 'shared' })
      .acquire('C', 50, 60)
    expectViolated(checkExclusion(story.history()), 'C acquire')
  })

  test('a renewal prolongs what is certainly held', () => {
    const story = new Story().acquire('A', 0, 10).op('A', 'renew', 90, 95).acquire('B', 120, 130)
    expectViolated(checkExclusion(story.history()), 'B acquire')
  })

  test('good: an unknown release may have landed', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .release('A', 12, 15, { outcome: 'unknown' })
      .acquire('B', 5, 20)
    expectHeld(checkExclusion(story.history()))
  })

  test('good: the release was invoked before the next acquire returned, in the very same instant', () => {
    const story = new Story().acquire('A', 0, 10).release('A', 20, 30).acquire('B', 5, 20)
    expectHeld(checkExclusion(story.history()))
  })

  test('good: the time of the first was up, or somebody forced it', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('B', 50, 100)
      .op('operator', 'force-release', 110, 112, { target: 'B' })
      .acquire('C', 90, 115)
    expectHeld(checkExclusion(story.history()))
  })

  test('without a TTL nothing is certain', () => {
    const story = new Story().op('A', 'acquire', 0, 10).op('B', 'acquire', 5, 20)
    expectNotJudged(checkExclusion(story.history()), 'TTL is not known')
    expectNotJudged(checkExclusion(new Story().acquire('A', 0, 1, { outcome: 'fail' }).history()), 'no grant')
  })
})
