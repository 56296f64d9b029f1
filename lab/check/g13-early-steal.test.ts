import { describe, test } from 'vitest'
import { checkEarlySteal } from './g13-early-steal.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

const exact = { engineTimes: 'exact' } as const

describe('G13', () => {
  test('granted to another before the time was up', () => {
    const story = new Story().acquire('A', 0, 10).acquire('B', 50, 99)
    expectViolated(
      checkEarlySteal(story.history()),
      'B acquire',
      '99 ms or before',
      'A acquire',
      'until 100 ms',
    )
  })

  test('a confirmed renewal counts', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .op('A', 'renew', 80, 90, { ttlMs: 100 })
      .acquire('B', 95, 150)
    expectViolated(checkEarlySteal(story.history()), 'until 180 ms')
  })

  test('T66 the engine grants while the keep-alive is on record as confirmed', () => {
    const story = new Story(exact)
      .acquire('A', 0, 10)
      .believes('A', 10, { sentAt: 0, until: 170, reason: 'taken-over' })
      .event(95, { kind: 'belief', what: 'confirmed', leaseId: 'a', sentAt: 90 })
      .engine(5, 'granted', 'a')
      .engine(101, 'granted', 'b')
    expectViolated(checkEarlySteal(story.history()), 'b of somebody', '101 ms', 'until 190 ms')
  })

  test('T5 the taker uses its own, shorter TTL', () => {
    const story = new Story().acquire('A', 0, 10, { ttlMs: 500 }).acquire('B', 50, 60, { ttlMs: 20 })
    expectViolated(checkEarlySteal(story.history()), 'until 500 ms')
  })

  test('permits: stolen only if it would not have fitted', () => {
    const permits = (weight: number) => ({ mode: 'permits', weight, capacity: 3 }) as const
    const story = new Story()
      .acquire('A', 0, 10, permits(1))
      .acquire('B', 20, 30, permits(2))
      .acquire('C', 40, 50, permits(1))
    expectViolated(checkEarlySteal(story.history()), 'C acquire', 'A acquire', 'B acquire')
  })

  test('a force release of another lease, or one that was over before, is no excuse', () => {
    const story = new Story()
      .op('operator', 'force-release', -20, -10)
      .acquire('A', 0, 10)
      .op('operator', 'force-release', 12, 13, { leaseId: 'z' })
      .acquire('B', 20, 30)
    expectViolated(checkEarlySteal(story.history()), 'B acquire')
  })

  test('good: a force release of this lease; one that nobody knows the end of; and everything wiped', () => {
    const aimed = new Story()
      .acquire('A', 0, 10)
      .op('operator', 'force-release', 12, 13, { leaseId: 'a' })
      .acquire('B', 20, 30)
    expectHeld(checkEarlySteal(aimed.history()))
    const late = new Story()
      .op('operator', 'force-release', -9, null)
      .acquire('A', 0, 10)
      .acquire('B', 20, 30)
    expectHeld(checkEarlySteal(late.history()))
    const wiped = new Story(exact)
      .acquire('A', 0, 10)
      .event(15, { kind: 'engine', what: 'deleted' })
      .acquire('B', 20, 30)
    expectHeld(checkEarlySteal(wiped.history()))
  })

  test('good: permits that fill it exactly', () => {
    const permit = { mode: 'permits', weight: 1, capacity: 2 } as const
    const story = new Story().acquire('A', 0, 10, permit).acquire('B', 20, 30, permit)
    expectHeld(checkEarlySteal(story.history()))
  })

  test('good: exactly when the time is up; and a renewal that nobody has confirmed yet', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .op('A', 'renew', 90, 120, { outcome: 'unknown' })
      .acquire('B', 50, 100)
    expectHeld(checkEarlySteal(story.history()))
  })

  test('good: released, with whatever outcome, before the other had it', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .release('A', 20, null)
      .acquire('B', 15, 30)
      .op('B', 'close', 40, 50)
      .acquire('C', 35, 60)
    expectHeld(checkEarlySteal(story.history()))
  })

  test('good: deleted, as the engine told later; and forced, as the engine told at once', () => {
    const seen = new Story().acquire('A', 0, 10).acquire('B', 20, 30).engine(60, 'deleted', 'a')
    expectHeld(checkEarlySteal(seen.history()))
    const told = new Story(exact).acquire('A', 0, 10).engine(15, 'forced', 'a').acquire('B', 20, 30)
    expectHeld(checkEarlySteal(told.history()))
  })

  test('good: evicted, as the engine told late and the client later still', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .believes('A', 10, { until: 60, reason: 'deleted' })
      .acquire('B', 20, 30)
      .engine(35, 'deleted', 'a')
      .release('A', 65, 70, { outcome: 'fail' })
    expectHeld(checkEarlySteal(story.history()))
  })

  test('a release that the engine told late is no excuse: its client asked for it after the theft', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('B', 20, 30)
      .release('A', 40, 50)
      .engine(55, 'released', 'a')
    expectViolated(checkEarlySteal(story.history()), 'B acquire')
  })

  test('a deletion that came after the theft is no excuse', () => {
    const story = new Story(exact)
      .acquire('A', 0, 10)
      .engine(5, 'granted', 'a')
      .acquire('B', 20, 30)
      .engine(25, 'granted', 'b')
      .engine(60, 'deleted', 'a')
    expectViolated(checkEarlySteal(story.history()), 'B acquire')
  })

  test('good: concurrent acquires, of which nobody knows which came first, are not called theft', () => {
    const story = new Story().acquire('A', 0, 20).acquire('B', 10, 30)
    expectHeld(checkEarlySteal(story.history()))
  })

  test('T64 good: a lease on an old session counts from that session, be it told by the answer or by the belief', () => {
    const story = new Story()
      .acquire('A', 80, 90, { sentAt: 0 })
      .acquire('B', 100, 110)
      .believes('B', 110, { sentAt: 20, until: 115, reason: 'expired' })
      .acquire('C', 115, 120)
    expectHeld(checkEarlySteal(story.history()))
  })

  test('without grants there is nothing to judge', () => {
    expectNotJudged(
      checkEarlySteal(new Story().acquire('A', 0, 1, { outcome: 'fail' }).history()),
      'no grant',
    )
  })
})
