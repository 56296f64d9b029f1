/** Readers beside each other, writers alone: the guard rule for shared fences. */
import assert from 'node:assert/strict'
import { guardTopic } from './case.ts'

export const sharingCases = guardTopic('shared fences', [
  {
    rule: 'D20',
    title: 'shared fences pass beside each other, in any order and again',
    async play(stage) {
      const guard = await stage.guard()
      for (const token of [5n, 7n, 6n, 5n, 7n]) await stage.accepts(guard, stage.shared(token))
    },
  },
  {
    rule: 'D21',
    title: 'G5 a shared fence that is older than an exclusive one is refused',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(6n))
      const error = await stage.refuses(guard, 'FENCE_STALE', stage.shared(5n))
      assert.equal(error.highest, 6n)
    },
  },
  {
    rule: 'D22',
    title: 'G5 an exclusive fence that is older than a shared one is refused',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.shared(6n))
      const error = await stage.refuses(guard, 'FENCE_STALE', stage.fence(5n))
      assert.equal(error.highest, 6n)
    },
  },
  {
    rule: 'D23',
    title: 'G5 an exclusive fence ends all shared ones before it',
    async play(stage) {
      const guard = await stage.guard()
      for (const token of [3n, 5n, 4n]) await stage.accepts(guard, stage.shared(token))
      await stage.accepts(guard, stage.fence(6n))
      for (const token of [3n, 4n, 5n]) await stage.refuses(guard, 'FENCE_STALE', stage.shared(token))
    },
  },
  {
    rule: 'D24',
    title: 'G5 a shared fence ends the exclusive one before it',
    async play(stage) {
      const guard = await stage.guard()
      const writer = stage.fence(3n)
      await stage.accepts(guard, writer)
      await stage.accepts(guard, stage.shared(4n))
      await stage.refuses(guard, 'FENCE_STALE', writer)
    },
  },
  {
    rule: 'D25',
    title: 'G5 an older shared fence does not lower what an exclusive one must beat',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.shared(8n))
      await stage.accepts(guard, stage.shared(2n))
      assert.equal(await stage.highestToken(guard), 8n)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(5n))
      await stage.accepts(guard, stage.fence(9n))
    },
  },
  {
    rule: 'D26',
    title: 'G5 shared fences after an exclusive one do not make the guard forget it',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.shared(2n))
      await stage.accepts(guard, stage.fence(5n))
      await stage.accepts(guard, stage.shared(9n))
      await stage.accepts(guard, stage.shared(7n))
      for (const token of [2n, 4n, 5n]) await stage.refuses(guard, 'FENCE_STALE', stage.shared(token))
      await stage.accepts(guard, stage.shared(6n))
    },
  },
  {
    rule: 'D27',
    title: 'T68 a shared and an exclusive holder with the same token do not both pass, in either order',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n, { grant: 'writer' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.shared(5n, { grant: 'reader' }))
      await stage.accepts(guard, stage.shared(6n, { grant: 'reader' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(6n, { grant: 'writer' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(6n, { grant: 'reader' }))
    },
  },
])
