/** The check and the effect are one step. */
import assert from 'node:assert/strict'
import type { Fence } from '../../base/fence.ts'
import type { Guard } from '../../guards/guard.ts'
import { guardTopic } from './case.ts'
import { failureOf, type GuardStage, soon } from './stage.ts'

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

/** A run that writes and then fails with `error` must leave everything as it was. */
async function failsWithoutTrace(
  stage: GuardStage,
  guard: Guard<unknown>,
  fence: Fence,
  fail: (error: Error) => unknown,
): Promise<void> {
  const before = await stage.snapshot(guard)
  const planted = new Error('planted')
  const failed = guard.run(fence, async (tx) => {
    await stage.world.write(tx, 'resource', 'half done')
    return fail(planted)
  })
  assert.equal(await failureOf(failed), planted)
  assert.deepEqual(await stage.snapshot(guard), before)
}

export const transactingCases = guardTopic('one step', [
  {
    rule: 'D60',
    title:
      'G5 an effect that throws undoes what it wrote and what the guard learnt, and its own error comes out',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(1n))
      await failsWithoutTrace(stage, guard, stage.fence(5n), (error) => {
        throw error
      })
      await failsWithoutTrace(stage, guard, stage.fence(5n, { name: 'unseen' }), async (error) => {
        await turn()
        throw error
      })
      const planted = new Error('planted')
      const synchronous = guard.run(stage.fence(5n), () => {
        throw planted
      })
      assert.equal(await failureOf(synchronous), planted)
      assert.equal(await stage.highestToken(guard), 1n)
    },
  },
  {
    rule: 'D61',
    title: 'G5 after a failed effect the holder before still passes, and so does another try',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(1n))
      await failsWithoutTrace(stage, guard, stage.fence(2n), (error) => Promise.reject(error))
      await stage.accepts(guard, stage.fence(1n))
      await stage.accepts(guard, stage.fence(2n))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(1n))
    },
  },
  {
    rule: 'D62',
    title: 'the effect sees what it has written, and its result comes out, whatever it is',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(1n)
      const seen = await guard.run(fence, async (tx) => {
        await stage.world.write(tx, 'resource', 'new')
        return stage.world.read(tx, 'resource')
      })
      assert.equal(seen, 'new')
      for (const result of [undefined, null, 0, { deep: ['value'] }])
        assert.equal(await guard.run(fence, () => result), result)
    },
  },
  {
    rule: 'D63',
    title: 'T41 concurrent runs wait for each other: 50 increments at once make 50',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(1n)
      const increment = async (tx: unknown) => {
        const before = Number((await stage.world.read(tx, 'count')) ?? 0)
        await turn()
        await stage.world.write(tx, 'count', String(before + 1))
      }
      await Promise.all(Array.from({ length: 50 }, () => guard.run(fence, increment)))
      assert.equal(await stage.world.stored('count'), '50')
    },
  },
  {
    rule: 'D64',
    title: 'G5 T41 of holders that come at once, none passes after a newer one has',
    async play(stage) {
      const guard = await stage.guard()
      const order = [3n, 1n, 4n, 1n, 5n, 9n, 2n, 6n, 8n, 7n, 9n, 9n]
      const passed: bigint[] = []
      await Promise.allSettled(
        order.map((token) =>
          guard.run(stage.fence(token), async () => {
            await turn()
            passed.push(token)
          }),
        ),
      )
      assert.ok(passed.includes(9n))
      assert.deepEqual(
        passed,
        passed.toSorted((a, b) => Number(a - b)),
      )
      assert.equal(await stage.highestToken(guard), 9n)
    },
  },
  {
    rule: 'D65',
    title: 'a failed or refused run does not hold up those behind it',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n))
      const outcomes = await Promise.allSettled([
        guard.run(stage.fence(1n), () => 'stale'),
        guard.run(stage.fence(5n), () => Promise.reject(new Error('planted'))),
        guard.run(stage.fence(6n), () => 'fine'),
      ])
      assert.deepEqual(
        outcomes.map(({ status }) => status),
        ['rejected', 'rejected', 'fulfilled'],
      )
    },
  },
  {
    rule: 'D66',
    title: 'G11 a signal that was aborted before: its reason comes out, and nothing happens',
    async play(stage) {
      const guard = await stage.guard()
      const reason = new Error('cancelled')
      const signal = AbortSignal.abort(reason)
      let calls = 0
      assert.equal(await failureOf(guard.run(stage.fence(5n), () => void calls++, { signal })), reason)
      assert.equal(calls, 0)
      assert.equal(await guard.highest('n'), null)
    },
  },
  {
    rule: 'D67',
    title: 'G11 a signal that aborts while a run is queued ends the wait at once, and only that one',
    async play(stage) {
      const guard = await stage.guard()
      const gate = Promise.withResolvers<void>()
      const running = guard.run(stage.fence(1n), () => gate.promise)
      const controller = new AbortController()
      const reason = new Error('cancelled')
      let calls = 0
      const cancelledCall = failureOf(
        guard.run(stage.fence(2n), () => void calls++, { signal: controller.signal }),
      )
      const behind = guard.run(stage.fence(3n), () => 'served')
      controller.abort(reason)
      assert.equal(await soon(cancelledCall).finally(gate.resolve), reason)
      await running
      assert.equal(await behind, 'served')
      assert.equal(calls, 0)
    },
  },
  {
    rule: 'D68',
    title: 'G11 a signal that aborts during the effect: its reason comes out, and nothing was applied',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(1n))
      const before = await stage.snapshot(guard)
      const controller = new AbortController()
      const reason = new Error('cancelled')
      const run = guard.run(
        stage.fence(2n),
        async (tx) => {
          await stage.world.write(tx, 'resource', 'half done')
          controller.abort(reason)
          await turn()
        },
        { signal: controller.signal },
      )
      assert.equal(await failureOf(run), reason)
      assert.deepEqual(await stage.snapshot(guard), before)
      await stage.accepts(guard, stage.fence(1n))
    },
  },
  {
    rule: 'D69',
    title: 'a run inside an effect of the same resource is refused instead of waiting for itself',
    async play(stage) {
      const guard = await stage.guard()
      const inner: unknown[] = []
      await guard.run(stage.fence(1n), async () => {
        inner.push(await failureOf(soon(guard.run(stage.fence(1n, { name: 'm' }), () => {}))))
      })
      assert.equal((inner[0] as { code?: string }).code, 'INVALID_ARGUMENT')
      await stage.accepts(guard, stage.fence(1n, { name: 'm' }))
    },
  },
  {
    rule: 'D70',
    title: 'highest can be asked inside an effect',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(7n, { name: 'm' }))
      assert.equal(await guard.run(stage.fence(1n), () => soon(stage.highestToken(guard, 'm'))), 7n)
    },
  },
  {
    rule: 'D71',
    title: 'options that do not exist or make no sense are refused',
    async play(stage) {
      const guard = await stage.guard()
      for (const options of [{ onec: true }, { once: 1 }, { signal: {} }, null, 5])
        await stage.refuses(guard, 'INVALID_ARGUMENT', stage.fence(1n), options as object)
      for (const options of [
        { issuers: [] },
        { issuers: [''] },
        { name: '' },
        { forgetAfterMs: 0 },
        { forgetAfterMs: Number.NaN },
      ])
        await assert.rejects(async () => stage.guard(options), { code: 'INVALID_ARGUMENT' })
      for (const options of [{}, { untouchedForMs: -1 }, { untouchedForMs: Number.NaN }])
        await assert.rejects(guard.prune(options as { untouchedForMs: number }), { code: 'INVALID_ARGUMENT' })
    },
  },
])
