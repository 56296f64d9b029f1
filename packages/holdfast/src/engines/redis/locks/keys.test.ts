import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { isHoldfastError } from '../../../base/errors.ts'
import { slotOf } from '../client/index.ts'
import { Keys } from './keys.ts'

const keys = new Keys({ namespace: 'default', isCluster: false })

describe('keys of names', () => {
  test('a plain name is its own key, as foreign clients write it', () => {
    assert.equal(keys.lock('invoices/2026-11'), 'holdfast:default:{invoices/2026-11}')
  })

  test.each(['x', 'a%b', '{x}', '}{', '%7b', '日本語 🦀', 'a:s', 'a}:s', 'x:x:y'])(
    '%s comes back as it was',
    (name) => {
      const key = keys.lock(name)
      assert.equal(keys.nameOf(key), name)
      assert.equal(keys.nameOf(`${key}:s`), name)
      for (const suffix of [':s', ':q', ':h', ':t', ':x:an.attempt|session'])
        assert.equal(
          slotOf(`app:${key}${suffix}`),
          slotOf(key),
          'T52 one slot, whatever stands in front or behind',
        )
    },
  )

  test('T49 names and namespaces do not run into each other', () => {
    const all = [
      keys.lock('x'),
      keys.lock('{x}'),
      keys.lock('%7bx%7d'),
      keys.session('x'),
      new Keys({ namespace: 'default:{x}', isCluster: false }).lock('x'),
      new Keys({ namespace: 'default:session', isCluster: false }).lock('x'),
    ]
    assert.equal(new Set(all).size, all.length)
  })

  test('keys of other programs are no names', () => {
    for (const key of [
      'lock:x',
      'holdfast:token',
      'holdfast:other:{x}',
      'holdfast:default:session:x',
      'holdfast:default:{x',
    ])
      assert.equal(keys.nameOf(key), null)
  })

  test('G12 a key function must return a key, and on a Cluster one with a hash tag', () => {
    const isInvalid = (error: unknown) => isHoldfastError(error, 'INVALID_ARGUMENT')
    for (const made of ['', undefined, 7, 'k'.repeat(2_000)])
      assert.throws(
        () => new Keys({ namespace: 'n', isCluster: false, key: () => made as string }).lock('x'),
        isInvalid,
      )
    const onCluster = (key: (name: string) => string) => new Keys({ namespace: 'n', isCluster: true, key })
    assert.throws(() => onCluster((name) => `lock:${name}`).lock('x'), isInvalid)
    assert.equal(onCluster((name) => `lock:{${name}}`).lock('x'), 'lock:{x}')
  })
})
