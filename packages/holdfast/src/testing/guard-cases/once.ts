/** At most one effect for one lease. */
import assert from 'node:assert/strict'
import { guardTopic } from './case.ts'

const once = { once: true }

export const onceCases = guardTopic('once', [
  {
    rule: 'D80',
    title: 'once: the same fence does not pass twice',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(5n)
      await stage.accepts(guard, fence, once)
      const error = await stage.refuses(guard, 'FENCE_STALE', fence, once)
      assert.match(error.message, /used before/)
    },
  },
  {
    rule: 'D81',
    title: 'once: a use without it counts, and a use without it still passes afterwards',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(5n)
      await stage.accepts(guard, fence)
      await stage.refuses(guard, 'FENCE_STALE', fence, once)
      await stage.accepts(guard, fence)
    },
  },
  {
    rule: 'D82',
    title: 'once: a failed effect has not used the fence up',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(5n)
      await assert.rejects(
        guard.run(fence, () => Promise.reject(new Error('planted')), once),
        /planted/,
      )
      await stage.accepts(guard, fence, once)
      await stage.refuses(guard, 'FENCE_STALE', fence, once)
    },
  },
  {
    rule: 'D83',
    title: 'once: a newer fence passes, an older one does not, and of many at once one does',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n), once)
      await stage.accepts(guard, stage.fence(6n), once)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(5n), once)
      let effects = 0
      const fence = stage.fence(7n)
      await Promise.allSettled(Array.from({ length: 10 }, () => guard.run(fence, () => void effects++, once)))
      assert.equal(effects, 1)
    },
  },
  {
    rule: 'D84',
    title: 'once: shared fences are refused, because not every one of them is remembered',
    async play(stage) {
      const guard = await stage.guard()
      await stage.refuses(guard, 'INVALID_ARGUMENT', stage.shared(5n), once)
      await stage.refuses(guard, 'INVALID_ARGUMENT', [stage.fence(5n), stage.shared(5n, { name: 'm' })], once)
    },
  },
  {
    rule: 'D85',
    title: 'once: of several proofs, one that was used refuses all',
    async play(stage) {
      const guard = await stage.guard()
      const [a, b] = [stage.fence(5n, { name: 'a' }), stage.fence(6n, { name: 'b' })]
      await stage.accepts(guard, b, once)
      await stage.refuses(guard, 'FENCE_STALE', [a, b], once)
      await stage.accepts(guard, a, once)
    },
  },
])
