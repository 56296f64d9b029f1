/** Which tokens pass: the guard rule for exclusive fences. */
import assert from 'node:assert/strict'
import { isFence, withEpoch } from '../../base/fence.ts'
import { guardTopic } from './case.ts'

const LARGEST_TOKEN = 2n ** 63n - 1n

export const orderingCases = guardTopic('exclusive fences', [
  {
    rule: 'D1',
    title: 'G5 the first fence passes',
    async play(stage) {
      const guard = await stage.guard()
      assert.equal(await guard.highest('n'), null)
      await stage.accepts(guard, stage.fence(1n))
    },
  },
  {
    rule: 'D2',
    title: 'G5 a newer fence passes',
    async play(stage) {
      const guard = await stage.guard()
      for (const token of [1n, 2n, 70n]) await stage.accepts(guard, stage.fence(token))
      assert.equal(await stage.highestToken(guard), 70n)
    },
  },
  {
    rule: 'D3',
    title: 'G5 an older fence is refused as FENCE_STALE, and changes nothing',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(6n))
      const stale = stage.fence(5n)
      const error = await stage.refuses(guard, 'FENCE_STALE', stale)
      assert.equal(error.fence, stale)
      assert.equal(error.highest, 6n)
      assert.equal(error.retryable, false)
    },
  },
  {
    rule: 'D4',
    title: 'G5 the holder passes again and again until it is overtaken, and never afterwards',
    async play(stage) {
      const guard = await stage.guard()
      const holder = stage.fence(5n)
      for (let turn = 0; turn < 3; turn++) await stage.accepts(guard, holder)
      await stage.accepts(guard, stage.fence(6n))
      for (let turn = 0; turn < 3; turn++) await stage.refuses(guard, 'FENCE_STALE', holder)
    },
  },
  {
    rule: 'D5',
    title: 'T40 a read of the new holder is enough to shut the old one out',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(1n))
      await guard.run(stage.fence(2n), (tx) => stage.world.read(tx, 'resource'))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(1n))
    },
  },
  {
    rule: 'D6',
    title: 'T40 a stale holder cannot read either',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(2n))
      let seen: string | undefined
      await assert.rejects(
        guard.run(stage.fence(1n), async (tx) => {
          seen = await stage.world.read(tx, 'resource')
        }),
        { code: 'FENCE_STALE' },
      )
      assert.equal(seen, undefined)
    },
  },
  {
    rule: 'D7',
    title: 'T40 no update is lost when a stale holder wakes up between the read and the write of the new one',
    async play(stage) {
      const guard = await stage.guard()
      const [old, successor] = [stage.fence(1n), stage.fence(2n)]
      const add = async (fence: typeof old, amount: number, meanwhile?: () => Promise<void>) => {
        const before = Number((await guard.run(fence, (tx) => stage.world.read(tx, 'balance'))) ?? 0)
        await meanwhile?.()
        await guard.run(fence, (tx) => stage.world.write(tx, 'balance', String(before + amount)))
      }
      await add(old, 100)
      let acknowledged = 100
      await add(successor, 10, async () => {
        const write = guard.run(old, (tx) => stage.world.write(tx, 'balance', '1000'))
        await write.then(() => (acknowledged = 1_000)).catch(() => {})
      })
      assert.equal(await stage.world.stored('balance'), String(acknowledged + 10))
    },
  },
  {
    rule: 'D8',
    title: 'T68 of two holders with the same token only the first to come passes',
    async play(stage) {
      const guard = await stage.guard()
      const first = stage.fence(5n, { grant: 'first' })
      await stage.accepts(guard, first)
      const error = await stage.refuses(guard, 'FENCE_STALE', stage.fence(5n, { grant: 'second' }))
      assert.match(error.message, /same token/)
      await stage.accepts(guard, first)
    },
  },
  {
    rule: 'D9',
    title: 'T42 neighbours above 2^53, which a double cannot tell apart, are told apart',
    async play(stage) {
      const guard = await stage.guard()
      const base = 2n ** 53n
      await stage.accepts(guard, stage.fence(base))
      await stage.accepts(guard, stage.fence(base + 1n))
      assert.equal(await stage.highestToken(guard), base + 1n)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(base))
      await stage.accepts(guard, stage.fence(base + 1n))
    },
  },
  {
    rule: 'D10',
    title: 'T42 the largest of all tokens passes and is remembered exactly',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(LARGEST_TOKEN - 1n))
      await stage.accepts(guard, stage.fence(LARGEST_TOKEN))
      assert.equal(await stage.highestToken(guard), LARGEST_TOKEN)
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(LARGEST_TOKEN - 1n))
    },
  },
  {
    rule: 'D11',
    title: 'T75 a raised epoch is newer than every token before it',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(1_000_000n))
      await stage.accepts(guard, stage.fence(withEpoch(1, 1n)))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(1_000_001n))
    },
  },
  {
    rule: 'D12',
    title: 'names do not touch each other',
    async play(stage) {
      const guard = await stage.guard()
      await stage.accepts(guard, stage.fence(9n, { name: 'a' }))
      await stage.accepts(guard, stage.fence(3n, { name: 'b' }))
      await stage.refuses(guard, 'FENCE_STALE', stage.fence(8n, { name: 'a' }))
      await stage.accepts(guard, stage.fence(4n, { name: 'b' }))
    },
  },
  {
    rule: 'D13',
    title: 'names and issuers are taken literally, whatever they contain',
    async play(stage) {
      const odd = [
        '__proto__',
        'constructor',
        "'; DROP TABLE holdfast_guard_names; --",
        'a"b`c\\d%_*?',
        'é',
        'e\u0301',
        '🔒/鍵',
        'N',
        'n '.trimEnd(),
        'x'.repeat(255),
      ]
      const guard = await stage.guard({ issuers: ["it's ?1 $2", ...odd] })
      let token = 1n
      for (const name of odd) {
        assert.equal(await guard.highest(name), null, name)
        const fence = stage.fence(++token, { name, issuer: name })
        await stage.accepts(guard, fence)
        assert.deepEqual(await guard.highest(name), fence)
      }
      for (const name of odd)
        await stage.refuses(guard, 'FENCE_STALE', stage.fence(1n, { name, issuer: name }))
    },
  },
  {
    rule: 'D14',
    title: 'highest gives the newest fence in full, and null for a name that was never seen',
    async play(stage) {
      const guard = await stage.guard()
      const fence = stage.fence(5n, { grant: 'some-grant_1' })
      await stage.accepts(guard, fence)
      const highest = await guard.highest('n')
      assert.ok(isFence(highest))
      assert.deepEqual(highest, fence)
      assert.equal(await guard.highest('other'), null)
      await assert.rejects(guard.highest(''), { code: 'INVALID_ARGUMENT' })
    },
  },
])
