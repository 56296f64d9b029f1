import { describe, expect, test } from 'vitest'
import { checkBelief } from './g3-belief.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

describe('G3 by the lease’s own clock', () => {
  test('T2 a reading that says "held" after the deadline', () => {
    const story = new Story()
      .believes('A', 0, { driftMs: 5 })
      .event(96, { kind: 'belief', what: 'seen', leaseId: 'a' })
    expectViolated(checkBelief(story.history()), 'still said "held" at 96 ms', 'deadline at 95 ms')
  })

  test('a belief that ends too late', () => {
    const story = new Story().believes('A', 0, { until: 101, reason: 'expired' })
    expectViolated(checkBelief(story.history()), 'until 101 ms', 'deadline at 100 ms')
  })

  test('T6 a lease that is handed out already expired', () => {
    const story = new Story().believes('A', 150, { sentAt: 10, until: 150, reason: 'expired' })
    const messages = checkBelief(story.history()).violations.map(({ message }) => message)
    expect(messages[0]).toContain('already over when belief in it began')
  })

  test('T31 a confirmation that comes after the deadline revives it', () => {
    const story = new Story()
      .believes('A', 0)
      .event(120, { kind: 'belief', what: 'confirmed', leaseId: 'a', sentAt: 90 })
    expectViolated(checkBelief(story.history()), 'revived at 120 ms')
  })

  test('G4 a reading that says "held" after the end', () => {
    const story = new Story()
      .believes('A', 0, { until: 20, reason: 'deleted' })
      .event(25, { kind: 'belief', what: 'seen', leaseId: 'a' })
    expectViolated(checkBelief(story.history()), 'after it had ended')
  })

  test('good: a stopped process notices late that its belief ended in time', () => {
    const story = new Story().believes('A', 0, { driftMs: 5, until: 95, noticedAt: 400, reason: 'expired' })
    expectHeld(checkBelief(story.history()))
  })

  test('good: each confirmation counts from when it was sent, and the last moment counts as in time', () => {
    const story = new Story()
      .believes('A', 0)
      .event(60, { kind: 'belief', what: 'confirmed', leaseId: 'a', sentAt: 50 })
      .event(150, { kind: 'belief', what: 'seen', leaseId: 'a' })
      .event(150, { kind: 'belief', what: 'ended', leaseId: 'a', why: 'lost', reason: 'expired' })
    expectHeld(checkBelief(story.history()))
  })
})

describe('G3 against the engine and the others', () => {
  test('a belief that outlives the engine’s expiry (T63: a keep-alive that never counted)', () => {
    const story = new Story().believes('A', 0, { until: 80, reason: 'taken-over' }).engine(60, 'expired', 'a')
    expectViolated(checkBelief(story.history()), 'until 80 ms', 'expire at 60 ms')
  })

  test('two that exclude each other believe at once', () => {
    const story = new Story().believes('A', 0, { until: 90 }).believes('B', 70, { until: 120 })
    expectViolated(checkBelief(story.history()), 'b of B', 'a of A (believed from 0 ms to 90 ms)')
  })

  test('a reader and a writer believe at once', () => {
    const story = new Story()
      .believes('A', 0, { mode: 'shared', until: 90 })
      .believes('B', 70, { mode: 'shared', until: 90 })
      .believes('C', 80, { until: 120 })
    expectViolated(checkBelief(story.history()), 'c of C')
  })

  test('more permits are believed in than there are', () => {
    const permits = { mode: 'permits', weight: 1, capacity: 2 } as const
    const story = new Story()
      .believes('A', 0, { ...permits, until: 90 })
      .believes('B', 10, { ...permits, until: 90 })
      .believes('C', 20, { ...permits, until: 90 })
    expectViolated(checkBelief(story.history()), 'c of C', 'a of A', 'b of B')
  })

  test('good: the engine lets it expire in the moment in which belief ends', () => {
    const story = new Story().believes('A', 0, { until: 80, reason: 'expired' }).engine(80, 'expired', 'a')
    expectHeld(checkBelief(story.history()))
  })

  test('good: who crashed believes nothing any more; of others whose end is missing only the readings count', () => {
    const story = new Story()
      .believes('A', 0)
      .event(20, { kind: 'belief', what: 'seen', leaseId: 'a' })
      .fault('crash', 25, null, 'A')
      .believes('B', 30, { until: 40 })
    expectHeld(checkBelief(story.history()))
    const open = new Story().believes('A', 0).fault('pause', 25, null, 'A').believes('B', 30, { until: 40 })
    expectHeld(checkBelief(open.history()), 'the end of a belief was not recorded')
  })

  test('good: one ends in the moment in which the other begins', () => {
    const story = new Story().believes('A', 0, { until: 50 }).believes('B', 50, { until: 90 })
    expectHeld(checkBelief(story.history()))
  })

  test('good: a force release is learnt at the next keep-alive', () => {
    const story = new Story()
      .believes('A', 0, { until: 60, reason: 'force-released' })
      .op('operator', 'force-release', 20, 22, { target: 'A' })
      .believes('B', 30, { until: 90 })
    expectHeld(checkBelief(story.history()))
  })

  test('good: a key that was deleted behind everybody’s back', () => {
    const story = new Story()
      .believes('A', 0, { until: 60, reason: 'deleted' })
      .event(20, { kind: 'meddled', name: 'n', note: 'DEL' })
      .believes('B', 30, { until: 90 })
    expectHeld(checkBelief(story.history()))
  })

  test('good: belief lasts until the release has returned, but the name was given up before', () => {
    const story = new Story()
      .believes('A', 0, { until: 60 })
      .release('A', 20, 60)
      .believes('B', 30, { until: 90 })
    expectHeld(checkBelief(story.history()))
  })

  test('a force release of somebody else is no excuse', () => {
    const story = new Story()
      .believes('A', 0, { until: 60, reason: 'taken-over' })
      .op('operator', 'force-release', 20, 22, { target: 'Z' })
      .believes('B', 30, { until: 90 })
    expectViolated(checkBelief(story.history()), 'b of B')
  })

  test('without beliefs there is nothing to judge', () => {
    expectNotJudged(checkBelief(new Story().acquire('A', 0, 10).history()), 'no belief')
  })
})
