/** Proofs: which ones count, and several at once. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { isHoldfastError } from '../../base/errors.ts'
import { makeFence } from '../../base/fence.ts'
import { formatFence, parseFence } from '../../base/fence-text.ts'
import { guardTopic } from './case.ts'
import { failureOf, ISSUER, StageLease, soon } from './stage.ts'

export const provingCases = guardTopic('proofs', [
  {
    rule: 'D30',
    title: 'a lease, its fence, a list of either, and a fence that travelled as text all prove the same',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(5n)
      const lease = new StageLease(fence)
      for (const proof of [lease, fence, [lease], [fence], parseFence(formatFence(fence))])
        await stage.accepts(guard, proof)
      assert.deepEqual(await guard.highest('n'), fence)
    },
  },
  {
    rule: 'D31',
    title: 'G5 several proofs: all are remembered',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, [
        stage.fence(7n, { name: 'b' }),
        new StageLease(stage.fence(6n, { name: 'a' })),
      ])
      assert.equal(await stage.highestToken(guard, 'a'), 6n)
      assert.equal(await stage.highestToken(guard, 'b'), 7n)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(5n, { name: 'a' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(5n, { name: 'b' }))
    },
  },
  {
    rule: 'D32',
    title: 'G5 several proofs: one stale one refuses all, wherever it stands, and none is remembered',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(5n, { name: 'b' }))
      const fresh = [stage.fence(9n, { name: 'a' }), stage.fence(9n, { name: 'c' })] as const
      const stale = stage.fence(4n, { name: 'b' })
      await stage.refuses(guard, 'FENCE_STALE', [stale, ...fresh])
      await stage.refuses(guard, 'FENCE_STALE', [...fresh, stale])
      assert.equal(await guard.highest('a'), null)
      assert.equal(await guard.highest('c'), null)
    },
  },
  {
    rule: 'D33',
    title: 'T43 several proofs: one foreign one refuses all, also among the first that a guard ever sees',
    async play(stage) {
      const guard = await stage.guard()
      const own = stage.fence(5n, { name: 'a' })
      await stage.refuses(guard, 'FENCE_FOREIGN', [own, stage.fence(6n, { name: 'b', issuer: 'other' })])
      await stage.accepts(guard, stage.fence(1n, { name: 'c', issuer: 'other' }))
    },
  },
  {
    rule: 'D34',
    title: 'two proofs for one name are refused, also when they are the same',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(5n)
      await stage.refuses(guard, 'INVALID_ARGUMENT', [fence, stage.fence(6n)])
      await stage.refuses(guard, 'INVALID_ARGUMENT', [fence, new StageLease(fence)])
    },
  },
  {
    rule: 'D35',
    title: 'an empty list proves nothing',
    async play(stage) {
      await stage.refuses(await stage.guard(), 'INVALID_ARGUMENT', [])
    },
  },
  {
    rule: 'D36',
    title:
      'T43 what is not a fence is refused as such: plain objects, copies, numbers, texts, unfenced leases, permits',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(5n)
      await stage.accepts(guard, fence)
      const lease = new StageLease(stage.fence(6n))
      const impostors: unknown[] = [
        { issuer: ISSUER, name: 'n', mode: 'exclusive', token: 6n, grant: 'g6' },
        { ...fence, token: 6n },
        { ...fence },
        structuredClone(fence),
        { fencing: 'fenced', fence: { ...fence }, state: 'held', signal: lease.signal },
        { fencing: 'unfenced', name: 'n', state: 'held', signal: lease.signal },
        { fencing: 'unfenced', name: 'n', state: 'held', weight: 1, capacity: 3, signal: lease.signal },
        { fencing: 'unfenced', fence: stage.fence(6n), state: 'held', signal: lease.signal },
        { leases: [lease], fences: [lease.fence] },
        formatFence(stage.fence(6n)),
        6n,
        6,
        '6',
        true,
        null,
        undefined,
        () => fence,
      ]
      for (const impostor of impostors) {
        const error = await stage.refuses(guard, 'FENCE_INVALID', impostor)
        assert.equal(error.problem, 'not-a-fence')
        await stage.refuses(guard, 'FENCE_INVALID', [stage.fence(7n, { name: 'm' }), impostor])
      }
    },
  },
  {
    rule: 'D37',
    title: 'T43 a fence with impossible fields is refused as such',
    async play(stage) {
      const guard = await stage.guard()
      const impossible = [
        stage.fence(0n),
        stage.fence(-1n),
        stage.fence(2n ** 63n),
        stage.fence(6 as unknown as bigint),
        stage.fence('6' as unknown as bigint),
        stage.fence(6n, { mode: 'permits' as 'shared' }),
        stage.fence(6n, { grant: '' }),
        stage.fence(6n, { grant: 'a/b' }),
        stage.fence(6n, { issuer: '' }),
      ]
      for (const fence of impossible) {
        const error = await stage.refuses(guard, 'FENCE_INVALID', fence)
        assert.equal(error.problem, 'not-a-fence')
      }
      for (const name of ['', 'a//b', '..', 'x'.repeat(256), 'line\nbreak', '\ud800']) {
        const fence = makeFence({ issuer: ISSUER, name, mode: 'exclusive', token: 6n, grant: 'g6' })
        await stage.refuses(guard, 'FENCE_INVALID', fence)
      }
    },
  },
  {
    rule: 'D38',
    title:
      'T43 texts that are forged, changed, unsigned or malformed never become a fence, each with its own problem',
    async play(stage) {
      const guard = await stage.guard()
      const key = { id: 'k1', secret: randomBytes(32) }
      const stranger = { id: 'k1', secret: randomBytes(32) }
      const genuine = formatFence(stage.fence(5n), { signWith: key })
      const huge = stage.fence(2n ** 62n)
      const refused = [
        { text: formatFence(huge), problem: 'unsigned' },
        { text: formatFence(huge, { signWith: stranger }), problem: 'bad-signature' },
        { text: formatFence(huge, { signWith: { ...key, id: 'k2' } }), problem: 'unknown-key' },
        { text: genuine.replace('/5/', '/6/'), problem: 'bad-signature' },
        { text: 'hf1/nonsense', problem: 'malformed' },
        { text: '', problem: 'malformed' },
      ]
      const before = await stage.snapshot(guard)
      for (const { text, problem } of refused) {
        const error = await failureOf((async () => guard.run(parseFence(text, { keys: [key] }), () => {}))())
        assert.ok(isHoldfastError(error, 'FENCE_INVALID'), String(error))
        assert.equal(error.problem, problem)
      }
      assert.deepEqual(await stage.snapshot(guard), before)
      await stage.accepts(guard, parseFence(genuine, { keys: [key] }))
    },
  },
  {
    rule: 'D39',
    title: 'a lease that is lost is refused with its own reason',
    async play(stage) {
      const guard = await stage.guard()
      const lease = new StageLease(stage.fence(5n))
      const loss = lease.lose()
      assert.equal(await stage.refuses(guard, 'LEASE_LOST', lease), loss)
      assert.equal(await stage.refuses(guard, 'LEASE_LOST', [stage.fence(6n, { name: 'm' }), lease]), loss)
    },
  },
  {
    rule: 'D40',
    title: 'a lease that was released is refused',
    async play(stage) {
      const guard = await stage.guard()
      const lease = new StageLease(stage.fence(5n))
      await stage.accepts(guard, lease)
      await lease.release()
      assert.equal((await stage.refuses(guard, 'LEASE_LOST', lease)).reason, 'released')
    },
  },
  {
    rule: 'D41',
    title: 'a lease in jeopardy still passes',
    async play(stage) {
      const lease = new StageLease(stage.fence(5n))
      lease.state = 'jeopardy'
      await stage.accepts(await stage.guard(), lease)
    },
  },
  {
    rule: 'D42',
    title: 'a lease that is lost while its run is queued is refused',
    async play(stage) {
      const guard = await stage.guard()
      const lease = new StageLease(stage.fence(5n))
      const gate = Promise.withResolvers<void>()
      const before = guard.run(stage.fence(1n, { name: 'm' }), () => gate.promise)
      let calls = 0
      const waiting = failureOf(guard.run(lease, () => void calls++))
      const loss = lease.lose()
      gate.resolve()
      await before
      assert.equal(await waiting, loss)
      assert.equal(calls, 0)
      assert.equal(await guard.highest('n'), null)
    },
  },
  {
    rule: 'D43',
    title: 'a lease that is lost already is refused at once, and its run is not queued',
    async play(stage) {
      const guard = await stage.guard()
      const lease = new StageLease(stage.fence(5n))
      const loss = lease.lose()
      const gate = Promise.withResolvers<void>()
      const before = guard.run(stage.fence(1n, { name: 'm' }), () => gate.promise)
      const refused = failureOf(guard.run(lease, () => {}))
      assert.equal(await soon(refused).finally(gate.resolve), loss)
      await before
    },
  },
])
