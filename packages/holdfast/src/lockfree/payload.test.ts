import { describe, expect, test } from 'vitest'
import { payloadDigest } from './payload.ts'

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
