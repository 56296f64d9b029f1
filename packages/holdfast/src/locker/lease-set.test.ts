import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { createFaultyRig } from '../../test/faulty-rig.ts'
import { createRig, peek } from '../../test/rig.ts'
import { isHoldfastError } from '../base/errors.ts'
import { canonicalOrder } from '../base/lease-set.ts'
import { compareNames } from '../base/names.ts'

function refused(names: unknown, rule: RegExp): void {
  assert.throws(
    () => canonicalOrder(names as string[]),
    (error) =>
      isHoldfastError(error, 'INVALID_ARGUMENT') && error.argument === 'names' && rule.test(error.message),
  )
}

describe('the canonical order', () => {
  test('T54 is the same whatever order the names are given in', () => {
    const names = fc.uniqueArray(fc.stringMatching(/^[ab\uff5e\u{1f512}]{1,4}$/u), {
      minLength: 1,
      maxLength: 10,
    })
    fc.assert(
      fc.property(names, fc.infiniteStream(fc.nat()), (given, keys) => {
        const sortKeys = given.map((name) => ({ name, key: keys.next().value }))
        const shuffled = sortKeys.sort((a, b) => a.key - b.key).map(({ name }) => name)
        assert.deepEqual(canonicalOrder(shuffled), [...given].sort(compareNames))
      }),
    )
  })

  test('does not touch the list that it was given', () => {
    const names = Object.freeze(['b', 'a'])
    assert.deepEqual(canonicalOrder(names), ['a', 'b'])
    assert.deepEqual(names, ['b', 'a'])
  })

  test('refuses what is no list of different names', () => {
    for (const names of [[], undefined, null, 'ab', {}, new Set(['a']), { length: 1, 0: 'a' }])
      refused(names, /list of at least one name/)
    refused(['a', 'b', 'a'], /name twice: "a"/)
    refused(['a', ''], /must not be empty/)
    refused(['a', 7], /must be a string/)
    refused(['a', '../b'], /segment/)
    refused(new Array(3), /must be a string, not undefined/)
  })
})

describe('several leases as one', () => {
  test('are in canonical order, each with its own lease and fence', async () => {
    const set = await createRig().locker().acquireAll(['b', 'c', 'a'])
    assert.deepEqual(
      set.leases.map(({ name }) => name),
      ['a', 'b', 'c'],
    )
    assert.deepEqual(
      set.fences.map(({ name }) => name),
      ['a', 'b', 'c'],
    )
    const tokens = set.fences.map(({ token }) => token)
    assert.deepEqual(
      [...new Set(tokens)].sort((a, b) => Number(a - b)),
      tokens,
    )
    assert.equal(set.get('b'), set.leases[1])
    assert.throws(() => set.get('d'), /"d" is not one of the set's names/)
    await set.release()
  })

  test('have the time of the one that has the least', async () => {
    const rig = createRig()
    await using set = await rig.locker().acquireAll(['a', 'b'])
    assert.equal(set.remainingMs, Math.min(...set.leases.map((lease) => lease.remainingMs)))
    await set.get('b').release()
    assert.equal(set.remainingMs, 0)
  })

  test('G3 the signal aborts when the first of them is lost, and is judged at every read', async () => {
    const rig = createRig()
    const set = await rig.locker().acquireAll(['a', 'b'])
    const { signal } = set
    rig.engine.deleteName('default', 'b')
    assert.equal(signal.aborted, false)
    await rig.clock.advance(6_000)
    assert.ok(isHoldfastError(signal.reason, 'LEASE_LOST') && signal.reason.resource === 'b')
    assert.equal(set.get('a').state, 'held')
    assert.equal(set.remainingMs, 0)

    const late = await rig.locker().acquireAll(['c', 'd'])
    rig.clock.block(60_000)
    assert.equal(late.signal.aborted, true, 'without any timer having fired')
  })

  test('are released as one, with one outcome each, and by await using', async () => {
    const rig = createRig()
    const locker = rig.locker()
    const set = await locker.acquireAll(['a', 'b'])
    await set.get('a').release()
    assert.deepEqual(await set.release(), ['not-held', 'released'])
    assert.equal(set.signal.aborted, false, 'releasing does not abort')
    {
      await using _ = await locker.acquireAll(['a', 'b'])
      assert.equal(await locker.tryAcquire('b'), null)
    }
    assert.deepEqual(await locker.list(), [])
  })

  test('T14 a signal ends the wait for their release, and not the release', async () => {
    const { clock, faulty, locker } = createFaultyRig()
    const { client, faults } = faulty()
    const set = await client.acquireAll(['a', 'b'])
    for (const _ of set.leases) faults.next('release', { kind: 'late-reply', ms: 100 })
    const released = peek(set.release({ signal: AbortSignal.abort() }))
    await clock.settle()
    assert.deepEqual(released.value, ['unknown', 'unknown'])
    await clock.advance(100)
    assert.deepEqual(await locker().list(), [])
  })
})
