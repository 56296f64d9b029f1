import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { limits } from './defaults.ts'
import { FenceStaleError } from './errors.ts'
import { isFence, makeFence, withEpoch, withoutEpoch } from './fence.ts'

const MAX_TOKEN = 2n ** 63n - 1n
const MAX_ENGINE_TOKEN = 2n ** 52n - 1n
const fields = { issuer: 'issuer', name: 'name', mode: 'exclusive', token: 5n, grant: 'grant' } as const

describe('a fence', () => {
  test('is frozen, and has exactly the five fields that it shows', () => {
    const fence = makeFence({ ...fields, extra: 'dropped' } as typeof fields)
    assert.ok(Object.isFrozen(fence))
    assert.deepEqual({ ...fence }, fields)
    assert.throws(() => {
      ;(fence as { token: bigint }).token = 9n
    }, TypeError)
  })

  test('T42 is written as JSON with all digits of its token, also inside something else', () => {
    const fence = makeFence({ ...fields, token: MAX_TOKEN })
    const written = JSON.parse(JSON.stringify({ fence, error: new FenceStaleError(fence, MAX_TOKEN).fence }))
    const expected = { ...fields, token: '9223372036854775807' }
    assert.deepEqual(written, { fence: expected, error: expected })
    assert.deepEqual(Object.keys(fence), Object.keys(fields), 'and shows no more than before')
  })

  test('is told from look-alikes: a plain object, a copy, a clone, a lease, a token', () => {
    const fence = makeFence(fields)
    assert.equal(isFence(fence), true)
    const others = [
      fields,
      { ...fence },
      structuredClone(fence),
      { fence },
      [fence],
      5n,
      'name',
      null,
      undefined,
      () => fence,
    ]
    for (const other of others) assert.equal(isFence(other), false)
  })

  test('of another copy of Holdfast in the process is a fence too', () => {
    const foreign = Object.defineProperty({ ...fields }, Symbol.for('holdfast.fence'), { value: true })
    assert.equal(isFence(foreign), true)
  })

  test('T43 with an impossible field is none', () => {
    const impossible: Record<string, unknown>[] = [
      { token: 0n },
      { token: -1n },
      { token: MAX_TOKEN + 1n },
      { token: 5 },
      { token: '5' },
      { token: undefined },
      { mode: 'permits' },
      { mode: 'EXCLUSIVE' },
      { mode: undefined },
      { grant: '' },
      { grant: 'a/b' },
      { grant: 'é' },
      { grant: 'x'.repeat(65) },
      { grant: 5 },
      { name: '' },
      { name: 'a//b' },
      { name: '/a' },
      { name: 'a/..' },
      { name: 'line\nbreak' },
      { name: '\ud800' },
      { name: 'x'.repeat(limits.nameBytes + 1) },
      { name: undefined },
      { issuer: '' },
      { issuer: 'tab\t' },
      { issuer: 'x'.repeat(limits.issuerBytes + 1) },
      { issuer: undefined },
    ]
    for (const change of impossible)
      assert.equal(
        isFence(makeFence({ ...fields, ...change } as typeof fields)),
        false,
        JSON.stringify(Object.keys(change)),
      )
    for (const change of [
      { token: 1n },
      { token: MAX_TOKEN },
      { grant: 'x'.repeat(64) },
      { name: '__proto__' },
      { issuer: '鍵 /🔒' },
    ])
      assert.equal(isFence(makeFence({ ...fields, ...change })), true)
  })
})

describe('epochs', () => {
  const epochs = fc.integer({ min: 0, max: limits.maxEpoch })
  const engineTokens = fc.bigInt({ min: 1n, max: MAX_ENGINE_TOKEN })

  test('come off again, and only with the epoch that was put on', () => {
    fc.assert(
      fc.property(epochs, epochs, engineTokens, (epoch, other, engineToken) => {
        const token = withEpoch(epoch, engineToken)
        assert.equal(withoutEpoch(epoch, token), engineToken)
        if (other !== epoch && other !== 0) assert.equal(withoutEpoch(other, token), null)
      }),
    )
  })

  test('T75 decide first: every token of a higher epoch is greater, and within one the order is the engine’s', () => {
    fc.assert(
      fc.property(epochs, epochs, engineTokens, engineTokens, (epochA, epochB, a, b) => {
        const [tokenA, tokenB] = [withEpoch(epochA, a), withEpoch(epochB, b)]
        if (epochA === epochB) assert.equal(tokenA < tokenB, a < b)
        else assert.equal(tokenA < tokenB, epochA < epochB)
      }),
    )
  })

  test('leave every token positive and within 63 bits', () => {
    assert.equal(withEpoch(limits.maxEpoch, MAX_ENGINE_TOKEN), MAX_TOKEN)
    assert.equal(withEpoch(1, 1n), 2n ** 52n + 1n)
    assert.equal(withEpoch(0, 1n), 1n)
    fc.assert(
      fc.property(epochs, engineTokens, (epoch, engineToken) =>
        isFence(makeFence({ ...fields, token: withEpoch(epoch, engineToken) })),
      ),
    )
  })

  test('leave no room for an engine that counts higher than 52 bits, and say so instead of mixing them up', () => {
    assert.equal(withEpoch(0, MAX_ENGINE_TOKEN + 1n), MAX_ENGINE_TOKEN + 1n)
    assert.throws(() => withEpoch(1, MAX_ENGINE_TOKEN + 1n), { code: 'INVALID_ARGUMENT' })
  })
})

test('without an epoch, a token is what the engine issued, however large', () => {
  for (const token of [1n, 2n ** 52n, 2n ** 63n - 1n]) assert.equal(withoutEpoch(0, token), token)
})
