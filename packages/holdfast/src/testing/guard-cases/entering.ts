/** `enter`: the guard in a transaction of the user's own. */
import assert from 'node:assert/strict'
import { isHoldfastError } from '../../base/errors.ts'
import type { Proof } from '../../guards/guard.ts'
import { guardTopic } from './case.ts'
import { failureOf, StageLease } from './stage.ts'

export const enteringCases = guardTopic('enter', [
  {
    rule: 'D110',
    title: 'G5 enter checks and remembers in the transaction, and what follows is applied with it',
    async play(stage) {
      const guard = await stage.guard()
      await stage.world.transaction(guard, async (tx) => {
        await guard.enter(tx, stage.fence(5n))
        await stage.world.write(tx, 'resource', 'entered')
      })
      assert.equal(await stage.world.stored('resource'), 'entered')
      assert.equal(await stage.highestToken(guard), 5n)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(4n))
    },
  },
  {
    rule: 'D111',
    title: 'G5 enter refuses a stale fence, also one that only run has seen a newer one of',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n))
      const before = await stage.snapshot(guard)
      const entered = stage.world.transaction(guard, async (tx) => {
        await stage.world.write(tx, 'resource', 'half done')
        await guard.enter(tx, stage.fence(4n))
      })
      assert.ok(isHoldfastError(await failureOf(entered), 'FENCE_STALE'))
      assert.deepEqual(await stage.snapshot(guard), before)
    },
  },
  {
    rule: 'D112',
    title: 'G5 a transaction that is rolled back takes with it what enter remembered',
    async play(stage) {
      const guard = await stage.guard()
      const rolledBack = stage.world.transaction(guard, async (tx) => {
        await guard.enter(tx, stage.fence(5n))
        throw new Error('planted')
      })
      await assert.rejects(rolledBack, /planted/)
      assert.equal(await guard.highest('n'), null)
      await stage.accepts(guard, stage.fence(4n, { issuer: 'other' }))
    },
  },
  {
    rule: 'D113',
    title: 'T41 enter outside a transaction is refused: check and effect would be two steps',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(1n))
      const tx = await stage.world.outsideTransaction(guard)
      const error = await failureOf(guard.enter(tx, stage.fence(5n)))
      assert.ok(isHoldfastError(error, 'INVALID_ARGUMENT'), String(error))
      assert.match(error.message, /transaction/)
      assert.equal(await stage.highestToken(guard), 1n)
    },
  },
  {
    rule: 'D114',
    title: 'enter takes the same proofs as run, and refuses the same',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n))
      const lost = new StageLease(stage.fence(6n))
      lost.lose()
      const refused: [unknown, string][] = [
        [stage.fence(4n), 'FENCE_STALE'],
        [stage.fence(6n, { issuer: 'other' }), 'FENCE_FOREIGN'],
        [{ ...stage.fence(6n) }, 'FENCE_INVALID'],
        [6n, 'FENCE_INVALID'],
        [lost, 'LEASE_LOST'],
        [[], 'INVALID_ARGUMENT'],
        [[stage.fence(6n), stage.fence(7n)], 'INVALID_ARGUMENT'],
        [[stage.fence(6n, { name: 'a' }), stage.fence(4n)], 'FENCE_STALE'],
      ]
      // The transaction is committed, which a caller should not do: even so a refusal has remembered nothing.
      const before = await stage.snapshot(guard)
      for (const [proof, code] of refused) {
        await stage.world.transaction(guard, async (tx) => {
          const error = await failureOf(guard.enter(tx, proof as Proof))
          assert.equal((error as { code?: string }).code, code)
        })
      }
      assert.deepEqual(await stage.snapshot(guard), before)
      const accepted = [
        stage.fence(5n),
        new StageLease(stage.fence(5n)),
        [stage.fence(6n), stage.shared(6n, { name: 'm' })],
      ]
      for (const proof of accepted) await stage.world.transaction(guard, (tx) => guard.enter(tx, proof))
      assert.equal(await stage.highestToken(guard), 6n)
    },
  },
  {
    rule: 'D115',
    title: 'enter sees what the same transaction has entered before',
    async play(stage) {
      const guard = await stage.guard()
      await stage.world.transaction(guard, async (tx) => {
        await guard.enter(tx, stage.fence(5n))
        await guard.enter(tx, stage.fence(5n))
        assert.ok(isHoldfastError(await failureOf(guard.enter(tx, stage.fence(4n))), 'FENCE_STALE'))
        const again = failureOf(guard.enter(tx, stage.fence(5n), { once: true }))
        assert.ok(isHoldfastError(await again, 'FENCE_STALE'))
        await guard.enter(tx, stage.fence(6n), { once: true })
      })
      assert.equal(await stage.highestToken(guard), 6n)
    },
  },
  {
    rule: 'D116',
    title: 'enter inside the effect of a run adds a proof to it, and a refusal undoes all of it',
    async play(stage) {
      const guard = await stage.guard()
      await guard.run(stage.fence(5n), (tx) => guard.enter(tx, stage.fence(7n, { name: 'm' })))
      assert.equal(await stage.highestToken(guard, 'm'), 7n)
      const before = await stage.snapshot(guard)
      const refused = guard.run(stage.fence(6n), (tx) => guard.enter(tx, stage.fence(6n, { name: 'm' })))
      assert.ok(isHoldfastError(await failureOf(refused), 'FENCE_STALE'))
      assert.deepEqual(await stage.snapshot(guard), before)
    },
  },
])
