import { describe, expect, test } from 'vitest'
import { fromJson, payloadDigest, resourceName, toJson } from './payload.ts'

describe('the digest of a payload', () => {
  test('is the same for the same members in another order, and for the same bytes in another view', () => {
    expect(payloadDigest({ a: 1, b: [2, { d: 4, c: 3 }] })).toBe(
      payloadDigest({ b: [2, { c: 3, d: 4 }], a: 1 }),
    )
    const bytes = new Uint8Array([1, 2, 3, 4])
    expect(payloadDigest(bytes.buffer)).toBe(payloadDigest(bytes))
    expect(payloadDigest(new DataView(bytes.buffer))).toBe(payloadDigest(bytes))
    expect(payloadDigest(undefined)).toBeNull()
  })

  test('stays what it is from release to release, because it is stored', () => {
    expect(payloadDigest({ b: [1, 'two'], a: null })).toBe('g2DnFx6LcoHdihGjsj5a9Md6e-Ulvo9qeE26ITscwm0')
    expect(payloadDigest(new Uint8Array([1, 2, 3]))).toBe('CHjzwxkFo-S34uGwaUOGzH3HfeRzNEL_eSoEwI63wjo')
  })

  test('is the same with and without a member that is undefined, as JSON has it', () => {
    expect(payloadDigest({ a: 1, b: undefined })).toBe(payloadDigest({ a: 1 }))
    expect(payloadDigest([{ b: undefined }, [null]])).toBe(payloadDigest([{}, [null]]))
    expect(payloadDigest(new Date(0))).toBe(payloadDigest('1970-01-01T00:00:00.000Z'))
  })

  test('differs for what differs', () => {
    const payloads = [
      null,
      0,
      1,
      '1',
      [1],
      [null],
      { a: null },
      { 1: 1 },
      {},
      [],
      new Uint8Array([1]),
      new Uint8Array([2]),
    ]
    expect(new Set(payloads.map(payloadDigest)).size).toBe(payloads.length)
  })

  test('G12 is refused for what JSON would drop, because others would be taken for the same', () => {
    const refused = [
      new Map([[1, 2]]),
      new Set([1]),
      { in: new Map() },
      [Number.NaN],
      Promise.resolve(1),
      new Error('x'),
      { f: () => 1 },
      { x: new Uint8Array(1) },
      1n,
      [undefined],
      { in: [1, undefined] },
      Array(1),
      [new Date(Number.NaN)],
      [{ toJSON: () => undefined }],
    ]
    for (const payload of refused)
      expect(() => payloadDigest(payload)).toThrow(/payload must be what JSON can express/)
  })
})

test('what is stored has at most so many bytes, and comes back as JSON has it', () => {
  const wrapping = toJson('result', '').length
  const largest = 'é'.repeat((1_048_576 - wrapping) / 2)
  expect(fromJson(toJson('result', largest))).toBe(largest)
  expect(() => toJson('result', `${largest}éé`)).toThrow(/at most 1048576 bytes/)
})

test('a name for a fence has the key itself, or its digest if the key is no name', () => {
  expect(resourceName('payments', 'key/7')).toBe('payments/key/7')
  const digests = ['x'.repeat(255), `${'x'.repeat(255)}y`, 'a\nb'].map((key) => resourceName('payments', key))
  for (const name of digests) expect(name).toMatch(/^payments\/sha256:[\w-]{43}$/)
  expect(new Set(digests).size).toBe(digests.length)
})
