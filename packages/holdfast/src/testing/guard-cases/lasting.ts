/** The guard's memory is as durable as the effect. */
import assert from 'node:assert/strict'
import { guardTopic } from './case.ts'

export const lastingCases = guardTopic('durability', [
  {
    rule: 'D120',
    title: 'T41 after a restart a stale fence is still refused, and the effect is still there',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n))
      await stage.accepts(guard, stage.shared(7n))
      const stored = await stage.world.stored('resource')
      await stage.world.reopen()
      const reopened = await stage.guard()
      assert.equal(await stage.world.stored('resource'), stored)
      await stage.refuses(reopened, 'FENCE_STALE', stage.fence(6n))
      await stage.refuses(reopened, 'FENCE_STALE', stage.shared(5n))
      await stage.accepts(reopened, stage.shared(6n))
      await stage.accepts(reopened, stage.fence(8n))
    },
  },
  {
    rule: 'D121',
    title: 'T41 T43 after a restart the issuer is still settled',
    async play(stage) {
      await stage.accepts(await stage.guard(), stage.fence(5n))
      await stage.world.reopen()
      await stage.refuses(
        await stage.guard(),
        'FENCE_FOREIGN',
        stage.fence(6n, { name: 'm', issuer: 'other' }),
      )
    },
  },
  {
    rule: 'D122',
    title: 'T41 after a restart the floor still holds',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(10n))
      await guard.prune({ untouchedForMs: 0 })
      await stage.world.reopen()
      const reopened = await stage.guard()
      await stage.refuses(reopened, 'FENCE_STALE', stage.fence(9n))
      await stage.refuses(reopened, 'FENCE_STALE', stage.fence(10n, { grant: 'other' }))
      await stage.accepts(reopened, stage.fence(11n))
    },
  },
  {
    rule: 'D123',
    title: 'T42 after a restart the largest tokens are remembered exactly, with their grants',
    async play(stage) {
      const largest = 2n ** 63n - 1n
      await stage.accepts(await stage.guard(), [
        stage.fence(largest),
        stage.fence(largest - 1n, { name: 'm' }),
      ])
      await stage.world.reopen()
      const reopened = await stage.guard()
      assert.deepEqual(await reopened.highest('n'), stage.fence(largest))
      await stage.refuses(reopened, 'FENCE_STALE', stage.fence(largest - 2n, { name: 'm' }))
      await stage.refuses(reopened, 'FENCE_STALE', stage.fence(largest, { grant: 'other' }))
      await stage.accepts(reopened, stage.fence(largest))
    },
  },
  {
    rule: 'D124',
    title: 'T41 after a restart what was used once stays used',
    async play(stage) {
      await stage.accepts(await stage.guard(), stage.fence(5n), { once: true })
      await stage.world.reopen()
      await stage.refuses(await stage.guard(), 'FENCE_STALE', stage.fence(5n), { once: true })
    },
  },
  {
    rule: 'D125',
    title: 'T41 two guards of one resource share what they remember',
    async play(stage) {
      const [one, other] = [await stage.guard(), await stage.guard()]
      await stage.accepts(one, stage.fence(5n))
      await stage.refuses(other, 'FENCE_STALE', stage.fence(4n))
      await stage.accepts(other, stage.fence(6n))
      await stage.refuses(one, 'FENCE_STALE', stage.fence(5n))
    },
  },
  {
    rule: 'D126',
    title: 'T41 T43 an issuer that was settled is not forgotten when `issuers` comes and goes',
    async play(stage) {
      await stage.accepts(await stage.guard(), stage.fence(5n))
      await stage.world.reopen()
      const wider = await stage.guard({ issuers: ['other'] })
      await stage.refuses(wider, 'FENCE_FOREIGN', stage.fence(6n))
      await stage.accepts(wider, stage.fence(6n, { name: 'm', issuer: 'other' }))
      await stage.refuses(wider, 'FENCE_FOREIGN', stage.fence(6n, { issuer: 'other' }))
      await stage.world.reopen()
      const again = await stage.guard()
      await stage.refuses(again, 'FENCE_FOREIGN', stage.fence(7n, { name: 'm', issuer: 'other' }))
      await stage.accepts(again, stage.fence(6n))
    },
  },
  {
    rule: 'D127',
    title: 'guards of different names do not share anything',
    async play(stage) {
      const [one, other] = [await stage.guard({ name: 'one' }), await stage.guard({ name: 'other' })]
      await stage.accepts(one, stage.fence(50n))
      await one.prune({ untouchedForMs: 0 })
      await stage.accepts(other, stage.fence(5n, { issuer: 'other' }))
      assert.equal(await one.highest('n'), null)
      assert.equal(await other.prune({ untouchedForMs: 0 }), 1)
      assert.deepEqual([one.name, other.name], ['one', 'other'])
    },
  },
])
