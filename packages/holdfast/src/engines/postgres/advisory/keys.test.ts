import { describe, expect, test } from 'vitest'
import { checkedKey, checkKeyChoice, defaultKey, Keys } from './keys.ts'

const neverAsked = () => Promise.reject(new Error('the server was asked'))

describe('keys', () => {
  test('the default key is the one that is documented, so that other languages can compute it', () => {
    expect(defaultKey('default', 'sku:42')).toBe(-5_958_643_235_632_679_363n)
  })

  test('T49 a hundred thousand names have as many keys, which use all 64 bits', () => {
    const keys = new Set<bigint>()
    let ones = 0n
    let zeros = 0n
    for (let index = 0; index < 100_000; index++) {
      const key = defaultKey('default', `sku:${index}`)
      keys.add(key)
      ones |= key
      zeros |= ~key
    }
    expect(keys.size).toBe(100_000)
    expect(BigInt.asUintN(64, ones)).toBe(2n ** 64n - 1n)
    expect(BigInt.asUintN(64, zeros)).toBe(2n ** 64n - 1n)
  })

  test('where a namespace ends and a name begins is never mistaken', () => {
    expect(defaultKey('a', 'b/c')).not.toBe(defaultKey('a/b', 'c'))
  })

  test('a key of the user’s own must be a bigint of 64 bits with sign', () => {
    expect(checkedKey(-(2n ** 63n))).toBe(-(2n ** 63n))
    for (const wrong of [7, 2n ** 63n, -(2n ** 63n) - 1n, '7', undefined])
      expect(() => checkedKey(wrong)).toThrow(/key\(name\) must return a bigint/)
    expect(() => checkKeyChoice('md5')).toThrow(/'hashtext'/)
  })

  test('what the server computes is asked for once a name', async () => {
    let asked = 0
    const keys = new Keys('default', 'hashtext', async () => String(++asked))
    expect([await keys.of('a'), await keys.of('a'), await keys.of('b')]).toEqual(['1', '1', '2'])
    expect(new Keys('default', (name) => BigInt(name.length), neverAsked).of('abc')).toBe('3')
    expect(new Keys('default', undefined, neverAsked).of('sku:42')).toBe('-5958643235632679363')
  })
})
