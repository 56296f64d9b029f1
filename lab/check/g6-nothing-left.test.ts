import { describe, expect, test } from 'vitest'
import { checkNothingLeft } from './g6-nothing-left.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

const unknown = { outcome: 'unknown' } as const
const exact = { engineTimes: 'exact', expirySlackMs: 5 } as const

describe('G6 by the engine’s own history', () => {
  test('T15 an acquire that timed out lands later and stays', () => {
    const story = new Story(exact)
      .acquire('A', 0, 50, unknown)
      .engine(200, 'granted', 'a')
      .engine(306, 'released', 'a')
    expectViolated(
      checkNothingLeft(story.history()),
      'left a holder behind',
      'landed at 200 ms',
      'gone by 305 ms',
    )
  })

  test('T20 a cancelled waiter keeps its position', () => {
    const story = new Story(exact)
      .acquire('A', 0, 50, { outcome: 'fail' })
      .engine(5, 'enqueued', 'a')
      .event(500, { kind: 'quiet' })
    expectViolated(checkNothingLeft(story.history()), 'left a waiter behind', 'still there at 500 ms')
  })

  test('the pending acquire of a process that was killed', () => {
    const story = new Story(exact)
      .acquire('A', 0, null)
      .engine(5, 'granted', 'a')
      .fault('crash', 10, null, 'A')
      .engine(116, 'expired', 'a')
    expectViolated(checkNothingLeft(story.history()), 'pending', 'expired at 116 ms')
  })

  test('T73 the late twin of a request whose undo was answered', () => {
    const story = new Story(exact)
      .acquire('A', 0, 50, unknown)
      .engine(5, 'granted', 'a')
      .engine(60, 'released', 'a')
      .engine(70, 'granted', 'a')
      .event(400, { kind: 'quiet' })
    expectViolated(checkNothingLeft(story.history()), 'landed at 70 ms')
  })

  test('a lease that everybody has forgotten when all is quiet', () => {
    const story = new Story(exact)
      .acquire('A', 0, 10)
      .engine(5, 'granted', 'a')
      .event(50, { kind: 'quiet' })
      .event(160, { kind: 'quiet' })
    expectViolated(checkNothingLeft(story.history()), 'gone by 155 ms')
  })

  test('good: gone exactly when it had to be, counted from the landing or from when the client gave up', () => {
    const story = new Story(exact)
      .acquire('A', 0, 50, unknown)
      .engine(200, 'granted', 'a')
      .engine(305, 'expired', 'a')
      .acquire('B', 0, 300, unknown)
      .engine(5, 'enqueued', 'b')
      .engine(405, 'left', 'b')
    expectHeld(checkNothingLeft(story.history()))
  })

  test('good: who got a lease may keep it', () => {
    const story = new Story(exact)
      .acquire('A', 0, 10)
      .engine(5, 'granted', 'a')
      .acquire('B', 0, 20, unknown)
      .engine(900, 'released', 'a')
      .event(901, { kind: 'snapshot', name: 'n', askedAt: 900, holders: [], waiters: [] })
    expectHeld(checkNothingLeft(story.history()))
  })

  test('a history that ends too early does not say', () => {
    const story = new Story(exact).acquire('A', 0, 50, unknown).engine(60, 'granted', 'a')
    expectNotJudged(checkNothingLeft(story.history()), 'ends before')
  })

  test('an end that was learnt late does not say', () => {
    const story = new Story()
      .acquire('A', 0, 50, unknown)
      .engine(60, 'granted', 'a')
      .engine(500, 'released', 'a')
    expectNotJudged(checkNothingLeft(story.history()), 'learnt late')
  })
})

describe('G6 by snapshots', () => {
  const shows = (at: number, ...ids: string[]) =>
    ({
      kind: 'snapshot',
      name: 'n',
      askedAt: at,
      holders: ids.map((leaseId) => ({ leaseId })),
      waiters: [],
    }) as const

  test('a stranger long after all was quiet', () => {
    const story = new Story()
      .acquire('A', 0, 50, unknown)
      .event(60, { kind: 'quiet' })
      .event(200, shows(200, 'x'))
    expectViolated(checkNothingLeft(story.history()), 'x was left behind as a holder', 'gone by 160 ms')
  })

  test('a lease whose release was answered', () => {
    const story = new Story().acquire('A', 0, 10).release('A', 20, 30).event(40, shows(31, 'a'))
    expectViolated(checkNothingLeft(story.history()), 'A release', 'had released it')
  })

  test('a failed acquire, as a waiter', () => {
    const story = new Story()
      .acquire('A', 0, 10, { outcome: 'fail' })
      .event(111, { kind: 'snapshot', name: 'n', askedAt: 111, holders: [], waiters: [{ leaseId: 'a' }] })
    expectViolated(checkNothingLeft(story.history()), 'a was left behind as a waiter')
  })

  test('an unknown acquire that the engine was seen to grant', () => {
    const landed = new Story().acquire('A', 0, 10, unknown).engine(200, 'granted', 'a')
    const { violations } = checkNothingLeft(landed.event(301, shows(301, 'a')).history())
    expect(violations.map(({ message }) => message)).toEqual([
      expect.stringContaining('left a holder behind'),
      expect.stringContaining('had to be gone by 300 ms'),
    ])
  })

  test('good: a stranger, where only another name was quiet; and one who believes in its lease', () => {
    const story = new Story()
      .acquire('A', 0, 10, unknown)
      .event(20, { kind: 'quiet', name: 'another' })
      .event(500, shows(500, 'x'))
      .acquire('B', 510, 520, unknown)
      .believes('B', 520)
      .event(900, shows(900, 'b'))
    expectHeld(checkNothingLeft(story.history()))
  })

  test('good: within the TTL, or asked for again after the quiet', () => {
    const story = new Story()
      .acquire('A', 0, 10, unknown)
      .event(20, { kind: 'quiet' })
      .event(120, shows(119, 'a'))
      .acquire('B', 130, 140)
      .event(200, shows(190, 'b'))
    expectHeld(checkNothingLeft(story.history()))
  })

  test('good: the snapshot was asked for before the release was answered', () => {
    const story = new Story().acquire('A', 0, 10).release('A', 20, 30).event(31, shows(29, 'a'))
    expectHeld(checkNothingLeft(story.history()))
  })

  test('an unknown acquire that may have landed at any time is left open', () => {
    const story = new Story().acquire('A', 0, 10, unknown).event(500, shows(500, 'a'))
    const { notJudged, violations } = checkNothingLeft(story.history())
    expect({ violations, why: notJudged[0]?.why }).toEqual({
      violations: [],
      why: 'a snapshot shows an unknown acquire, and when its request landed is not known',
    })
  })
})
