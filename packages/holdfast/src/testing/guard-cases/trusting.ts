/** Whose tokens are compared: issuers. */
import assert from 'node:assert/strict'
import { guardTopic } from './case.ts'
import { ISSUER } from './stage.ts'

export const trustingCases = guardTopic('issuers', [
  {
    rule: 'D50',
    title: 'T43 the first fence settles the issuer: others are refused as FENCE_FOREIGN, for every name',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n))
      const foreign = stage.fence(2n ** 62n, { issuer: 'other' })
      const error = await stage.refuses(guard, 'FENCE_FOREIGN', foreign)
      assert.equal(error.fence, foreign)
      assert.deepEqual(error.expected, [ISSUER])
      await stage.refuses(guard, 'FENCE_FOREIGN', stage.fence(6n, { name: 'new', issuer: 'other' }))
      await stage.accepts(guard, stage.fence(6n))
    },
  },
  {
    rule: 'D51',
    title: 'T43 with `issuers`, a stranger is refused although it came first, and settles nothing',
    async play(stage) {
      const guard = await stage.guard({ issuers: [ISSUER] })
      const error = await stage.refuses(guard, 'FENCE_FOREIGN', stage.fence(9n, { issuer: 'other' }))
      assert.deepEqual(error.expected, [ISSUER])
      await stage.accepts(guard, stage.fence(1n))
    },
  },
  {
    rule: 'D52',
    title: 'T43 a name stays with the issuer that it was first seen with, even if another is trusted too',
    async play(stage) {
      const guard = await stage.guard({ issuers: ['one', 'two'] })
      await stage.accepts(guard, stage.fence(5n, { name: 'a', issuer: 'one' }))
      await stage.accepts(guard, stage.fence(3n, { name: 'b', issuer: 'two' }))
      const error = await stage.refuses(guard, 'FENCE_FOREIGN', stage.fence(6n, { name: 'a', issuer: 'two' }))
      assert.deepEqual(error.expected, ['one'])
      await stage.refuses(guard, 'FENCE_FOREIGN', stage.fence(6n, { name: 'b', issuer: 'one' }))
      await stage.accepts(guard, stage.fence(6n, { name: 'a', issuer: 'one' }))
    },
  },
  {
    rule: 'D53',
    title: 'T43 issuers that differ in case, spaces or length are strangers to each other',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(1n, { issuer: 'issuer' }))
      for (const issuer of ['Issuer', 'issuer ', 'issue', 'issuers', 'issuer/'])
        await stage.refuses(guard, 'FENCE_FOREIGN', stage.fence(2n, { issuer }))
    },
  },
  {
    rule: 'D54',
    title: 'a first fence whose effect failed has settled nothing',
    async play(stage) {
      const guard = await stage.guard()
      const failing = guard.run(stage.fence(1n), () => Promise.reject(new Error('planted')))
      await assert.rejects(failing, /planted/)
      await stage.accepts(guard, stage.fence(1n, { issuer: 'other' }))
    },
  },
])
