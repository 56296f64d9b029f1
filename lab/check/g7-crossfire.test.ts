import { describe, test } from 'vitest'
import { checkCrossfire } from './g7-crossfire.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

describe('G7 by the engine’s own history', () => {
  test('T46 a late release hits the successor', () => {
    const story = new Story({ engineTimes: 'exact' })
      .acquire('A', 0, 10)
      .engine(100, 'expired', 'a')
      .acquire('B', 90, 110)
      .release('A', 120, 130, { id: 'late', outcome: 'unknown' })
      .engine(125, 'released', 'b', { by: 'late' })
      .release('B', 200, 210, { outcome: 'fail' })
    expectViolated(checkCrossfire(story.history()), 'A release', 'hit b of B')
  })

  test('T31 a renewal prolongs the successor', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('B', 90, 110)
      .op('A', 'renew', 120, 130, { id: 'late', outcome: 'unknown' })
      .engine(125, 'renewed', 'b', { by: 'late' })
    expectViolated(checkCrossfire(story.history()), 'A renew', 'hit b of B')
  })

  test('T74 a force release that is aimed at A hits B', () => {
    const story = new Story()
      .acquire('A', 0, 10, { token: 1n })
      .acquire('B', 20, 30, { token: 2n })
      .op('operator', 'force-release', 35, 40, { id: 'force', token: 1n, outcome: 'unknown' })
      .engine(38, 'forced', 'b', { by: 'force' })
    expectViolated(checkCrossfire(story.history()), 'operator force-release', 'hit b of B')
  })

  test('a release that nobody has asked for', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .engine(20, 'released', 'a')
      .release('A', 30, 40, { outcome: 'fail' })
    expectViolated(checkCrossfire(story.history()), 'released at 20 ms', 'nobody had asked')
  })

  test('a close that ends the leases of another process', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .op('B', 'close', 20, 30, { id: 'bye' })
      .engine(25, 'released', 'a', { by: 'bye' })
    expectViolated(checkCrossfire(story.history()), 'B close', 'hit a of A')
  })

  test('a force release that failed is nobody’s excuse, and neither is one that is aimed elsewhere', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .op('operator', 'force-release', 20, 30, { outcome: 'fail' })
      .op('operator', 'force-release', 31, 32, { target: 'Z' })
      .engine(35, 'forced', 'a')
    expectViolated(checkCrossfire(story.history()), 'forced at 35 ms', 'nobody had asked')
  })

  test('good: each hits its own; an acquire that was given up is undone behind the scenes', () => {
    const story = new Story()
      .acquire('A', 0, 10, { token: 1n })
      .release('A', 20, null, { id: 'r' })
      .engine(25, 'released', 'a', { by: 'r' })
      .acquire('B', 0, 50, { outcome: 'fail' })
      .engine(26, 'granted', 'b')
      .engine(27, 'released', 'b')
      .acquire('C', 60, 70, { token: 3n })
      .op('operator', 'force-release', 80, 90)
      .engine(85, 'forced', 'c')
    expectHeld(checkCrossfire(story.history()))
  })

  test('good: a client that has stopped believing releases in the background; a close ends all of its own', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .believes('A', 10, { until: 30, reason: 'max-hold' })
      .engine(31, 'released', 'a')
      .acquire('B', 40, 50)
      .op('B', 'close', 60, 70)
      .engine(65, 'released', 'b')
    expectHeld(checkCrossfire(story.history()))
  })
})

describe('G7 by what the clients saw', () => {
  test('T47 a late release says that it released', () => {
    const story = new Story().acquire('A', 0, 10).acquire('B', 110, 120).release('A', 130, 140)
    expectViolated(checkCrossfire(story.history()), 'A release', 'B acquire', 'had got the name')
  })

  test('T31 a late renewal says that it renewed', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('B', 110, 120)
      .release('B', 130, 140)
      .op('A', 'renew', 150, 160)
    expectViolated(checkCrossfire(story.history()), 'A renew')
  })

  test('T74 a force release says that it ended somebody who was gone', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .release('A', 20, 30)
      .acquire('B', 40, 50)
      .op('operator', 'force-release', 60, 70, { target: 'A', count: 1 })
    expectViolated(checkCrossfire(story.history()), 'operator force-release')
  })

  test('a renewal, and a force release, of what its own holder had released', () => {
    const renewed = new Story().acquire('A', 0, 10).release('A', 20, 30).op('A', 'renew', 40, 50)
    expectViolated(checkCrossfire(renewed.history()), 'A renew', 'had released a')
    const forced = new Story()
      .acquire('A', 0, 10)
      .release('A', 20, 30)
      .op('operator', 'force-release', 40, 50, { target: 'A', count: 1 })
    expectViolated(checkCrossfire(forced.history()), 'operator force-release', 'had released a')
  })

  test('good: a renewal while one of two entries, or an unknown release, is all that was released', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('A', 11, 12)
      .release('A', 20, 30)
      .op('A', 'renew', 40, 50)
      .acquire('B', 60, 70, { name: 'm' })
      .release('B', 80, 90, { name: 'm', outcome: 'unknown' })
      .op('B', 'renew', 91, 99, { name: 'm' })
    expectHeld(checkCrossfire(story.history()))
  })

  test('a lease is lost before its time, and nobody on record has ended it', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .believes('A', 10, { sentAt: 0, until: 50, reason: 'deleted' })
      .release('A', 60, 70, { outcome: 'fail' })
    expectViolated(checkCrossfire(story.history()), 'A lost a', '(deleted)', 'until 100 ms')
  })

  test('good: a late release that is told the truth, and one that overlaps with the next acquire', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .acquire('B', 110, 120)
      .release('A', 130, 140, { outcome: 'fail' })
      .acquire('C', 145, 160)
      .release('B', 150, 170)
    expectHeld(checkCrossfire(story.history()))
  })

  test('good: a shared release beside other readers; a force release that found nobody', () => {
    const story = new Story()
      .acquire('A', 0, 10, { mode: 'shared' })
      .acquire('B', 20, 30, { mode: 'shared' })
      .release('A', 40, 50)
      .release('B', 60, 70)
      .op('operator', 'force-release', 80, 90, { target: 'A', count: 0 })
    expectHeld(checkCrossfire(story.history()))
  })

  test('good: an attempt that was abandoned; a lease that the engine says was deleted, or that had no time left', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .op('A', 'abandon', 20, 30)
      .engine(25, 'released', 'a')
      .acquire('B', 40, 50)
      .believes('B', 50, { sentAt: 40, until: 60, reason: 'deleted' })
      .engine(55, 'deleted', 'b')
      .believes('C', 100, { until: 200, reason: 'taken-over' })
    expectHeld(checkCrossfire(story.history()))
  })

  test('good: lost before its time, because somebody meddled', () => {
    const story = new Story()
      .acquire('A', 0, 10)
      .believes('A', 10, { until: 50, reason: 'deleted' })
      .event(30, { kind: 'meddled', note: 'FLUSHALL' })
      .release('A', 60, 70, { outcome: 'fail' })
    expectHeld(checkCrossfire(story.history()))
  })

  test('without releases there is nothing to judge', () => {
    expectNotJudged(checkCrossfire(new Story().acquire('A', 0, 1).history()), 'released or renewed')
  })
})
