import { describe, test } from 'vitest'
import { checkGuard } from './g5-guard.ts'
import { expectHeld, expectNotJudged, expectViolated } from './testing/expectations.ts'
import { Story } from './testing/story.ts'

const shared = { mode: 'shared' } as const

describe('G5 by the guard’s own order', () => {
  test('an older fence after a newer one', () => {
    const story = new Story().guard(0, 'accepted', 'b', 2n).guard(1, 'accepted', 'a', 1n, { access: 'write' })
    expectViolated(checkGuard(story.history()), 'the write at 1 ms with a', 'is older than', 'token 2')
  })

  test('T40 a read counts as seen', () => {
    const story = new Story()
      .guard(0, 'accepted', 'b', 2n, { access: 'read' })
      .guard(1, 'accepted', 'a', 1n, { access: 'write' })
    expectViolated(checkGuard(story.history()), 'the read at 0 ms')
  })

  test('T68 the token of another grant', () => {
    const story = new Story().guard(0, 'accepted', 'a', 2n).guard(1, 'accepted', 'b', 2n)
    expectViolated(checkGuard(story.history()), 'but not the grant')
  })

  test('a shared fence that is not newer than the last exclusive one', () => {
    const story = new Story().guard(0, 'accepted', 'a', 5n).guard(1, 'accepted', 'b', 4n, shared)
    expectViolated(checkGuard(story.history()), 'is shared and not newer')
  })

  test('a shared fence with the token of an exclusive one', () => {
    const story = new Story().guard(0, 'accepted', 'a', 5n).guard(1, 'accepted', 'b', 5n, shared)
    expectViolated(checkGuard(story.history()), 'is shared and not newer')
  })

  test('an exclusive fence that is older than a shared one', () => {
    const story = new Story().guard(0, 'accepted', 'a', 5n, shared).guard(1, 'accepted', 'b', 4n)
    expectViolated(checkGuard(story.history()), 'is older than')
  })

  test('T43 another issuer', () => {
    const story = new Story({ issuer: 'ours' })
      .guard(0, 'accepted', 'a', 5n)
      .guard(1, 'accepted', 'b', 9n, { issuer: 'theirs' })
    expectViolated(checkGuard(story.history()), 'another issuer')
  })

  test('once means once', () => {
    const story = new Story()
      .guard(0, 'accepted', 'a', 5n, { once: true })
      .guard(1, 'accepted', 'a', 5n, { once: true })
    expectViolated(checkGuard(story.history()), 'may be used once')
  })

  test('a fence that is refused without cause', () => {
    const story = new Story()
      .guard(0, 'accepted', 'a', 5n)
      .guard(1, 'refused', 'b', 6n, { reason: 'stale', highest: 5n })
    expectViolated(checkGuard(story.history()), 'had seen nothing newer')
  })

  test('good: the holder again and again, then the next, and the stale one refused', () => {
    const story = new Story()
      .guard(0, 'accepted', 'a', 1n)
      .guard(1, 'accepted', 'a', 1n)
      .guard(2, 'accepted', 'b', 3n)
      .guard(3, 'refused', 'a', 1n, { reason: 'stale', highest: 3n })
      .guard(4, 'accepted', 'c', 2n, { name: 'other' })
    expectHeld(checkGuard(story.history()))
  })

  test('good: readers come in any order, as long as no writer is newer', () => {
    const story = new Story()
      .guard(0, 'accepted', 'a', 1n)
      .guard(1, 'accepted', 'c', 3n, shared)
      .guard(2, 'accepted', 'b', 2n, shared)
      .guard(3, 'accepted', 'd', 4n)
      .guard(4, 'refused', 'c', 3n, { ...shared, reason: 'stale', highest: 4n })
    expectHeld(checkGuard(story.history()))
  })

  test('good: a refusal by the floor of forgotten names', () => {
    const story = new Story()
      .guard(0, 'refused', 'a', 5n, { reason: 'stale', highest: 8n })
      .guard(1, 'accepted', 'b', 9n)
    expectHeld(checkGuard(story.history()))
  })
})

describe('G5 by what the clients saw', () => {
  const guarded = (token: bigint) => ({ token, guard: 'g' })

  test('an older write is accepted after a newer one has returned', () => {
    const story = new Story().op('B', 'write', 0, 10, guarded(2n)).op('A', 'write', 11, 20, guarded(1n))
    expectViolated(checkGuard(story.history()), 'A write', 'not newer than B write')
  })

  test('an older read is accepted after a newer update has returned', () => {
    const story = new Story().op('B', 'update', 0, 10, guarded(2n)).op('A', 'read', 11, 20, guarded(1n))
    expectViolated(checkGuard(story.history()), 'A read')
  })

  test('two grants with the same token are both accepted', () => {
    const story = new Story().op('B', 'write', 0, 10, guarded(2n)).op('A', 'write', 11, 20, guarded(2n))
    expectViolated(checkGuard(story.history()), 'A write')
  })

  test('a shared read is accepted after a newer exclusive write', () => {
    const story = new Story()
      .op('C', 'read', 0, 5, { ...guarded(9n), ...shared })
      .op('B', 'write', 10, 15, { ...guarded(10n) })
      .op('A', 'read', 20, 25, { ...guarded(8n), ...shared })
    expectViolated(checkGuard(story.history()), 'A read', 'B write')
  })

  test('good: a shared read is accepted after a newer shared one', () => {
    const story = new Story()
      .op('B', 'write', 0, 5, guarded(1n))
      .op('C', 'read', 10, 15, { ...guarded(9n), ...shared })
      .op('A', 'read', 20, 25, { ...guarded(8n), ...shared })
    expectHeld(checkGuard(story.history()))
  })

  test('good: concurrent ones may have been judged in either order; a failed one was not accepted', () => {
    const story = new Story()
      .op('A', 'write', 5, 20, guarded(1n))
      .op('B', 'write', 0, 5, guarded(2n))
      .op('A', 'write', 30, 40, { ...guarded(1n), outcome: 'fail' })
      .op('B', 'write', 41, 50, guarded(2n))
    expectHeld(checkGuard(story.history()))
  })

  test('good: an unknown one may not have been accepted', () => {
    const story = new Story()
      .op('B', 'write', 0, 10, { ...guarded(2n), outcome: 'unknown' })
      .op('A', 'write', 11, 20, guarded(1n))
    expectHeld(checkGuard(story.history()))
  })

  test('without a guard there is nothing to judge', () => {
    expectNotJudged(checkGuard(new Story().op('A', 'write', 0, 1).history()), 'guard')
  })
})
