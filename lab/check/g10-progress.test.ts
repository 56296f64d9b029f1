import { expect, test } from 'vitest'
import { checkProgress } from './g10-progress.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

/** The TTL is 100, so a waiter is due 130 after its holder is gone. */
const about = { expirySlackMs: 10, roundTripMs: 10 } as const
const waits = { waits: true } as const

test('G10 the lock of a crashed holder reaches the waiter too late', () => {
  const story = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, 200, waits)
    .fault('crash', 50, null, 'A')
  expectViolated(checkProgress(story.history()), 'B acquire', 'room since 50 ms', 'served by 180 ms')
})

test('G10 T19 a wake-up that is lost: released, and nobody notices', () => {
  const story = new Story(about).acquire('A', 0, 10).acquire('B', 20, 300, waits).release('A', 30, 40)
  expectViolated(checkProgress(story.history()), 'B acquire', 'room since 40 ms')
})

test('G10 T20 dead waiters that cost more than one TTL together', () => {
  const story = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, null, waits)
    .acquire('C', 21, null, waits)
    .acquire('D', 22, 400, waits)
    .fault('crash', 50, null, 'A')
    .fault('crash', 50, null, 'B')
    .fault('crash', 50, null, 'C')
  expectViolated(checkProgress(story.history()), 'D acquire', 'served by 280 ms')
})

test('G10 T72 a semaphore’s waiter sleeps although there is room', () => {
  const permit = { mode: 'permits', weight: 1, capacity: 2 } as const
  const story = new Story(about)
    .acquire('A', 0, 10, permit)
    .acquire('B', 0, 11, permit)
    .acquire('C', 20, 400, { ...permit, ...waits })
    .release('B', 30, 40)
  expectViolated(checkProgress(story.history()), 'C acquire', 'room since 40 ms')
})

test('G10 a waiter that is never served', () => {
  const story = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, null, waits)
    .release('A', 30, 40)
    .event(200, { kind: 'quiet', name: 'another' })
  expectViolated(checkProgress(story.history()), 'pending', 'not before 200 ms')
})

test('G10 when the engine works again, or the waiter can be reached again, it is due again', () => {
  const outage = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, 500, waits)
    .release('A', 30, 40)
    .fault('outage', 50, 100)
  expectViolated(checkProgress(outage.history()), 'room since 100 ms')
  const cutOff = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, 500, waits)
    .release('A', 30, 40)
    .fault('cut-off', 50, 100, 'B')
  expectViolated(checkProgress(cutOff.history()), 'room since 100 ms', 'served by 330 ms')
})

test('G10 good: served in the last moment; dead waiters cost one TTL more', () => {
  const story = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, 180, waits)
    .fault('crash', 50, null, 'A')
    .release('B', 190, 200)
    .acquire('C', 150, null, waits)
    .fault('pause', 195, null, 'C')
    .acquire('D', 160, 420, waits)
  expectHeld(checkProgress(story.history()))
})

test('G10 who died long ago excuses nobody', () => {
  const story = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, null, waits)
    .fault('pause', 30, 40, 'B')
    .acquire('C', 20, 1_150, waits)
    .release('A', 999, 1_000)
  expectViolated(checkProgress(story.history()), 'C acquire', 'served by 1130 ms')
})

test('G10 good: a waiter that gives up may have had it for a TTL', () => {
  const story = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, 150, { ...waits, outcome: 'unknown' })
    .acquire('C', 30, 370, waits)
    .release('A', 30, 40)
  expectHeld(checkProgress(story.history()))
})

test('G10 good: a living holder may keep it for as long as it likes; so may a line of them', () => {
  const story = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, 901, waits)
    .acquire('C', 21, 1_801, waits)
    .release('A', 899, 900)
    .release('B', 1_799, 1_800)
  expectHeld(checkProgress(story.history()))
})

test('G10 good: while the engine is out, or the waiter is cut off, nothing is due', () => {
  const story = new Story(about)
    .acquire('A', 0, 10)
    .acquire('B', 20, 600, waits)
    .fault('crash', 50, null, 'A')
    .fault('outage', 100, 300)
    .fault('cut-off', 350, 500, 'B')
  expectHeld(checkProgress(story.history()))
})

test('G10 good: a name that stays closed after an early release', () => {
  const story = new Story(about)
    .acquire('A', 0, 10, { holdAtLeastMs: 500 })
    .release('A', 20, 30)
    .acquire('B', 20, 515, waits)
  expectHeld(checkProgress(story.history()))
})

test('G10 good: a writer that waits for the last reader', () => {
  const story = new Story(about)
    .acquire('A', 0, 10, { mode: 'shared' })
    .acquire('B', 0, 10, { mode: 'shared' })
    .acquire('C', 20, 810, waits)
    .release('A', 30, 40)
    .release('B', 790, 800)
  expectHeld(checkProgress(story.history()))
})

test('G10 a history that ends too early, or that says too little, does not tell', () => {
  const early = new Story(about).acquire('A', 0, 10).acquire('B', 20, null, waits).release('A', 30, 40)
  expect(checkProgress(early.history()).notJudged[0]?.why).toContain('the history ends')
  const blind = new Story().acquire('A', 0, 10).acquire('B', 20, 30, waits)
  expectNotJudged(checkProgress(blind.history()), 'round trip')
  expectNotJudged(checkProgress(new Story(about).acquire('A', 0, 10).history()), 'waited')
})
