/** Names that are not used are forgotten; a floor for each issuer stays. */
import assert from 'node:assert/strict'
import type { Guard } from '../../guards/guard.ts'
import { guardTopic } from './case.ts'
import type { GuardStage } from './stage.ts'

const DAY_MS = 86_400_000

/** A guard that has seen tokens 10 and 20, and has forgotten both names. */
async function forgetful(stage: GuardStage): Promise<Guard<unknown>> {
  const guard = await stage.guard()
  await stage.accepts(guard, stage.fence(10n, { name: 'a' }))
  await stage.accepts(guard, stage.fence(20n, { name: 'b' }))
  await stage.world.passTime(1_000)
  assert.equal(await guard.prune({ untouchedForMs: 1_000 }), 2)
  return guard
}

export const forgettingCases = guardTopic('forgetting', [
  {
    rule: 'D90',
    title: 'prune forgets what was untouched for that long, and nothing else',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(1n, { name: 'old' }))
      await stage.accepts(guard, stage.fence(2n, { name: 'kept' }))
      await stage.world.passTime(1_000)
      await stage.accepts(guard, stage.fence(2n, { name: 'kept' }))
      await stage.world.passTime(500)
      assert.equal(await guard.prune({ untouchedForMs: 5_000 }), 0)
      assert.equal(await guard.prune({ untouchedForMs: 1_000 }), 1)
      assert.equal(await guard.highest('old'), null)
      assert.equal(await stage.highestToken(guard, 'kept'), 2n)
      assert.equal(await guard.prune({ untouchedForMs: 1_000 }), 0)
    },
  },
  {
    rule: 'D91',
    title: 'G5 a forgotten name still refuses what is older than all that was forgotten',
    async play(stage) {
      const guard = await forgetful(stage)
      const error = await stage.refuses(guard, 'FENCE_STALE', stage.fence(9n, { name: 'a' }))
      assert.equal(error.highest, 20n)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(19n, { name: 'b' }))
      await stage.accepts(guard, stage.fence(21n, { name: 'a' }))
    },
  },
  {
    rule: 'D92',
    title: 'G5 the floor holds for names that were never seen, and for shared fences',
    async play(stage) {
      const guard = await forgetful(stage)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(15n, { name: 'new' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.shared(15n, { name: 'new' }))
      await stage.accepts(guard, stage.shared(21n, { name: 'new' }))
    },
  },
  {
    rule: 'D93',
    title: 'T68 the floor itself passes with the grant that was seen, and with no other',
    async play(stage) {
      const guard = await forgetful(stage)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(20n, { name: 'b', grant: 'other' }))
      await stage.accepts(guard, stage.fence(20n, { name: 'b' }))
    },
  },
  {
    rule: 'D94',
    title: 'a name that is remembered is not bound by the floor',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(50n, { name: 'old' }))
      await stage.world.passTime(1_000)
      await stage.accepts(guard, stage.fence(5n, { name: 'new' }))
      assert.equal(await guard.prune({ untouchedForMs: 1_000 }), 1)
      await stage.accepts(guard, stage.fence(6n, { name: 'new' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(5n, { name: 'new' }))
    },
  },
  {
    rule: 'D95',
    title: 'there is one floor for each issuer',
    async play(stage) {
      const guard = await stage.guard({ issuers: ['one', 'two'] })
      await stage.accepts(guard, stage.fence(50n, { name: 'a', issuer: 'one' }))
      await stage.accepts(guard, stage.fence(5n, { name: 'b', issuer: 'two' }))
      await guard.prune({ untouchedForMs: 0 })
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(49n, { name: 'c', issuer: 'one' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(4n, { name: 'd', issuer: 'two' }))
      await stage.accepts(guard, stage.fence(6n, { name: 'd', issuer: 'two' }))
    },
  },
  {
    rule: 'D96',
    title: 'the floor never falls',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n, { name: 'low' }))
      await stage.world.passTime(1_000)
      await stage.accepts(guard, stage.fence(50n, { name: 'high' }))
      await stage.world.passTime(1_000)
      await stage.accepts(guard, stage.fence(6n, { name: 'low' }))
      assert.equal(await guard.prune({ untouchedForMs: 1_000 }), 1)
      await stage.world.passTime(1_000)
      assert.equal(await guard.prune({ untouchedForMs: 1_000 }), 1)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(49n, { name: 'low' }))
      await stage.accepts(guard, stage.fence(51n, { name: 'low' }))
    },
  },
  {
    rule: 'D97',
    title: 'once: what was used and then forgotten stays used',
    async play(stage) {
      const guard = await forgetful(stage)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(20n, { name: 'b' }), { once: true })
      await stage.accepts(guard, stage.fence(21n, { name: 'b' }), { once: true })
    },
  },
  {
    rule: 'D98',
    title: 'a shared fence counts for the floor as well',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n, { name: 'a' }))
      await stage.accepts(guard, stage.shared(30n, { name: 'a' }))
      await guard.prune({ untouchedForMs: 0 })
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(29n, { name: 'a' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.shared(29n, { name: 'a' }))
      await stage.accepts(guard, stage.shared(30n, { name: 'a' }))
    },
  },
  {
    rule: 'D99',
    title: 'names are forgotten by themselves after forgetAfterMs, by default 30 days, and the floor holds',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(10n, { name: 'old' }))
      await stage.world.passTime(29 * DAY_MS)
      await stage.accepts(guard, stage.fence(11n, { name: 'other' }))
      assert.equal(await stage.highestToken(guard, 'old'), 10n)
      await stage.world.passTime(2 * DAY_MS)
      await stage.accepts(guard, stage.fence(12n, { name: 'other' }))
      assert.equal(await guard.highest('old'), null)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(9n, { name: 'old' }))
    },
  },
  {
    rule: 'D100',
    title: 'forgetAfterMs can be shorter, or Infinity for never',
    async play(stage) {
      const brief = await stage.guard({ name: 'brief', forgetAfterMs: 1_000 })
      const lasting = await stage.guard({ name: 'lasting', forgetAfterMs: Number.POSITIVE_INFINITY })
      for (const guard of [brief, lasting]) await stage.accepts(guard, stage.fence(1n, { name: 'old' }))
      await stage.world.passTime(1_000 * DAY_MS)
      for (const guard of [brief, lasting]) await stage.accepts(guard, stage.fence(2n, { name: 'new' }))
      assert.equal(await brief.highest('old'), null)
      assert.equal(await stage.highestToken(lasting, 'old'), 1n)
    },
  },
  {
    rule: 'D101',
    title: 'G5 a shared fence that was refused stays refused after a newer one has brought the name back',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n))
      await stage.refuses(guard, 'FENCE_STALE', stage.shared(4n))
      await guard.prune({ untouchedForMs: 0 })
      await stage.refuses(guard, 'FENCE_STALE', stage.shared(4n))
      await stage.accepts(guard, stage.shared(8n))
      for (const token of [4n, 5n]) await stage.refuses(guard, 'FENCE_STALE', stage.shared(token))
      for (const token of [6n, 8n]) await stage.accepts(guard, stage.shared(token))
    },
  },
  {
    rule: 'D102',
    title: 'G5 the floor that a shared fence was itself keeps out all that are older, and passes again',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n))
      await stage.accepts(guard, stage.shared(6n))
      await guard.prune({ untouchedForMs: 0 })
      for (let times = 0; times < 2; times++) await stage.accepts(guard, stage.shared(6n))
      for (const token of [4n, 5n]) await stage.refuses(guard, 'FENCE_STALE', stage.shared(token))
      await stage.accepts(guard, stage.shared(7n))
    },
  },
])
