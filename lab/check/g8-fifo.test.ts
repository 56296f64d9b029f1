import { describe, test } from 'vitest'
import { checkFirstComeFirstServed } from './g8-fifo.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

const queue = { waiting: 'queue' } as const

describe('G8 by the engine’s own history', () => {
  test('the second in line is served first', () => {
    const story = new Story(queue)
      .engine(0, 'enqueued', 'a', { process: 'A' })
      .engine(1, 'enqueued', 'b', { process: 'B' })
      .engine(2, 'granted', 'b', { process: 'B' })
    expectViolated(checkFirstComeFirstServed(story.history()), 'b of B was granted', 'before a of A')
  })

  test('a try overtakes the line', () => {
    const story = new Story(queue).engine(0, 'enqueued', 'a').engine(2, 'granted', 'b')
    expectViolated(checkFirstComeFirstServed(story.history()), 'without having waited')
  })

  test('a reader overtakes a waiting writer', () => {
    const story = new Story(queue)
      .engine(0, 'granted', 'r1', { mode: 'shared' })
      .engine(1, 'enqueued', 'w', { mode: 'exclusive' })
      .engine(2, 'enqueued', 'r2', { mode: 'shared' })
      .engine(3, 'granted', 'r2', { mode: 'shared' })
    expectViolated(checkFirstComeFirstServed(story.history()), 'r2', 'before w')
  })

  test('good: the dead, the gone and the expired do not block the living', () => {
    const story = new Story(queue)
      .engine(0, 'enqueued', 'a', { process: 'A' })
      .engine(1, 'enqueued', 'b', { process: 'B' })
      .engine(2, 'enqueued', 'c', { process: 'C' })
      .engine(3, 'enqueued', 'd', { process: 'D' })
      .fault('crash', 4, null, 'A')
      .engine(5, 'left', 'b')
      .engine(6, 'expired', 'c')
      .engine(7, 'granted', 'd')
    expectHeld(checkFirstComeFirstServed(story.history()))
  })

  test('who was stopped and runs again is not to be overtaken any more', () => {
    const story = new Story(queue)
      .engine(0, 'enqueued', 'a', { process: 'A' })
      .fault('pause', 1, 5, 'A')
      .engine(6, 'granted', 'b', { process: 'B' })
    expectViolated(checkFirstComeFirstServed(story.history()), 'before a of A')
  })

  test('good: nobody knows the line before a gap, and a deletion ends it', () => {
    const story = new Story(queue)
      .engine(0, 'enqueued', 'a')
      .event(1, { kind: 'engine', what: 'gap' })
      .engine(2, 'granted', 'b')
      .engine(3, 'enqueued', 'c')
      .event(4, { kind: 'engine', what: 'deleted', name: 'n' })
      .engine(5, 'granted', 'd')
    expectHeld(checkFirstComeFirstServed(story.history()), 'before a gap')
  })

  test('a resize, or a deletion elsewhere, does not end the line', () => {
    const story = new Story(queue)
      .engine(0, 'enqueued', 'a')
      .event(1, { kind: 'engine', what: 'resized', name: 'n', capacity: 2 })
      .event(2, { kind: 'engine', what: 'deleted', name: 'another' })
      .engine(3, 'granted', 'b')
    expectViolated(checkFirstComeFirstServed(story.history()), 'before a')
  })

  test('good: who asks again keeps its place; who left and came back goes to the end', () => {
    const story = new Story(queue)
      .engine(0, 'enqueued', 'a')
      .engine(1, 'enqueued', 'b')
      .engine(2, 'enqueued', 'a')
      .engine(3, 'granted', 'a')
      .engine(4, 'enqueued', 'c')
      .engine(5, 'left', 'b')
      .engine(6, 'enqueued', 'b')
      .engine(7, 'granted', 'c')
      .engine(8, 'granted', 'b')
    expectHeld(checkFirstComeFirstServed(story.history()))
  })
})

describe('G8 by what the clients saw', () => {
  const queued = (id: string) => ({ kind: 'queued', id }) as const

  test('who came later has the lower token', () => {
    const story = new Story(queue)
      .acquire('A', 0, 100, { id: 'a', token: 3n })
      .event(5, queued('a'))
      .acquire('B', 10, 50, { token: 2n })
    expectViolated(checkFirstComeFirstServed(story.history()), 'B acquire', 'before A acquire')
  })

  test('a try is granted while somebody waits', () => {
    const story = new Story(queue)
      .acquire('A', 0, 100, { id: 'a', token: 9n })
      .event(5, queued('a'))
      .acquire('B', 10, 11, { token: 8n, waits: false })
    expectViolated(checkFirstComeFirstServed(story.history()), 'B acquire')
  })

  test('without tokens, the one that excludes the other returned first', () => {
    const story = new Story(queue).acquire('A', 0, 60, { id: 'a' }).event(5, queued('a')).acquire('B', 10, 50)
    expectViolated(checkFirstComeFirstServed(story.history()), 'B acquire')
  })

  test('good: the answer of the first was slow, but its token says that it was first', () => {
    const story = new Story(queue)
      .acquire('A', 0, 100, { id: 'a', token: 2n })
      .event(5, queued('a'))
      .acquire('B', 10, 50, { token: 3n })
    expectHeld(checkFirstComeFirstServed(story.history()))
  })

  test('good: asked for before the other knew of its place; or the other lost its place and came again', () => {
    const story = new Story(queue)
      .acquire('B', 4, 50, { token: 2n })
      .acquire('A', 0, 100, { id: 'a', token: 3n })
      .event(5, queued('a'))
      .event(60, queued('a'))
      .acquire('C', 55, 90, { token: 1n })
    expectHeld(checkFirstComeFirstServed(story.history()))
  })

  test('good: without tokens, readers that return in another order, and a lease that may have ended meanwhile', () => {
    const readers = new Story(queue)
      .acquire('A', 0, 60, { id: 'a', mode: 'shared', token: 5n })
      .event(5, queued('a'))
      .acquire('B', 10, 50, { mode: 'shared' })
    expectHeld(checkFirstComeFirstServed(readers.history()))
    const slow = new Story(queue)
      .acquire('A', 0, 500, { id: 'a' })
      .event(5, queued('a'))
      .acquire('B', 10, 300)
    expectHeld(checkFirstComeFirstServed(slow.history()))
  })

  test('an engine without a queue promises nothing; a run without waiters shows nothing', () => {
    expectNotJudged(
      checkFirstComeFirstServed(new Story({ waiting: 'poll' }).acquire('A', 0, 1).history()),
      'poll',
    )
    expectNotJudged(checkFirstComeFirstServed(new Story(queue).acquire('A', 0, 1).history()), 'waited')
  })
})
