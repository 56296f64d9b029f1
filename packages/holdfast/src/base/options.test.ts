import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { isHoldfastError } from './errors.ts'
import {
  checkCallback,
  checkData,
  checkInteger,
  checkKnownOptions,
  checkNote,
  checkNumber,
  checkOneOf,
  checkSignal,
} from './options.ts'

function refused(check: () => unknown, argument: string, rule: RegExp): void {
  assert.throws(check, (error) => {
    assert.ok(isHoldfastError(error, 'INVALID_ARGUMENT'), String(error))
    assert.equal(error.argument, argument)
    assert.equal(error.retryable, false)
    assert.match(error.message, rule)
    return true
  })
}

describe('numbers', () => {
  const range = { min: 1, max: 100 }

  test('the limits themselves are within', () => {
    assert.equal(checkNumber('x', 1, range), 1)
    assert.equal(checkNumber('x', 100, range), 100)
    assert.equal(checkNumber('x', 1.5, range), 1.5)
    assert.equal(checkNumber('x', 0, { min: 0 }), 0)
    assert.equal(checkNumber('x', Number.MAX_SAFE_INTEGER, { min: 0 }), Number.MAX_SAFE_INTEGER)
  })

  test.each<[unknown, RegExp]>([
    [Number.NaN, /^waitMs must be a number, not NaN\.$/],
    ['5000', /must be a number, not "5000"/],
    ['5s', /must be a number, not "5s"/],
    [null, /must be a number, not null/],
    [undefined, /must be a number, not undefined/],
    [true, /must be a number, not true/],
    [5n, /must be a number, not bigint/],
    [{}, /must be a number, not object/],
    [[5], /must be a number, not object/],
    [new Number(5), /must be a number, not object/],
    [new Date(5), /must be a number, not object/],
    [Symbol('5'), /must be a number, not symbol/],
    [() => 5, /must be a number, not function/],
    [Number.POSITIVE_INFINITY, /must be finite, not Infinity/],
    [Number.NEGATIVE_INFINITY, /must be finite, not -Infinity/],
    [-1, /must be at least 1, not -1/],
    [0, /must be at least 1, not 0/],
    [0.999, /must be at least 1, not 0\.999/],
    [101, /must be at most 100, not 101/],
    [1e308, /must be at most 100/],
  ])('T55 %s is refused', (value, rule) => refused(() => checkNumber('waitMs', value, range), 'waitMs', rule))

  test('infinity is taken only where it means something, and only the positive one', () => {
    const infinity = Number.POSITIVE_INFINITY
    assert.equal(checkNumber('waitMs', infinity, { min: 0, infinityAllowed: true }), infinity)
    assert.equal(checkNumber('waitMs', infinity, { min: 0, max: 5, infinityAllowed: true }), infinity)
    refused(() => checkNumber('waitMs', -infinity, { min: 0, infinityAllowed: true }), 'waitMs', /finite/)
    refused(() => checkNumber('waitMs', infinity, { min: 0 }), 'waitMs', /finite/)
  })

  test('without an upper limit, numbers stop where they stop being exact', () => {
    refused(() => checkNumber('x', 2 ** 53, { min: 0 }), 'x', /at most 9007199254740991/)
  })

  test('a TTL that was meant in seconds is told so', () => {
    refused(
      () => checkNumber('ttlMs', 10, { min: 20 }),
      'ttlMs',
      /at least 20, not 10\. It is in milliseconds: 10 s would be 10000\./,
    )
    assert.throws(
      () => checkNumber('ttlMs', -1, { min: 20 }),
      (error: Error) => !/in milliseconds/.test(error.message),
    )
    assert.throws(
      () => checkNumber('weight', 10, { min: 20 }),
      (error: Error) => !/in milliseconds/.test(error.message),
    )
  })

  test('whole numbers', () => {
    assert.equal(checkInteger('capacity', 3, range), 3)
    refused(() => checkInteger('capacity', 2.5, range), 'capacity', /must be a whole number, not 2\.5/)
    refused(() => checkInteger('capacity', Number.NaN, range), 'capacity', /must be a number/)
    refused(() => checkInteger('capacity', 0, range), 'capacity', /at least 1/)
    assert.equal(
      checkInteger('capacity', Number.POSITIVE_INFINITY, { min: 0, infinityAllowed: true }),
      Number.POSITIVE_INFINITY,
    )
  })

  test('whatever is taken is within the range', () => {
    fc.assert(
      fc.property(fc.anything(), (value) => {
        let taken: number
        try {
          taken = checkInteger('x', value, range)
        } catch (error) {
          return assert.ok(isHoldfastError(error, 'INVALID_ARGUMENT'))
        }
        assert.ok(taken === value && Number.isInteger(taken) && taken >= 1 && taken <= 100)
      }),
      { numRuns: 1_000 },
    )
  })
})

describe('choices', () => {
  test('the error lists what there is', () => {
    assert.equal(checkOneOf('mode', 'shared', ['exclusive', 'shared']), 'shared')
    for (const value of ['Shared', '', null, undefined, 0, ['shared'], 'x'.repeat(1_000)])
      refused(
        () => checkOneOf('mode', value, ['exclusive', 'shared']),
        'mode',
        /^mode must be one of exclusive, shared, not .{1,45}\.$/,
      )
  })
})

describe('option names', () => {
  const known = ['ttlMs', 'waitMs', 'signal']
  const check = (options: unknown) => checkKnownOptions('options', options, known)

  test('known ones, none, and no options at all', () => {
    check(undefined)
    check({})
    check({ ttlMs: 5 })
    check({ ttlMs: undefined })
    check(Object.create(null))
  })

  test.each(['ttlms', 'ttl', 'timeout', 'waitMS', 'retryCount', '__proto__', 'constructor'])(
    'T55 a misspelt one is refused and not ignored: %s',
    (name) => {
      const options = JSON.parse(`{ ${JSON.stringify(name)}: 1 }`)
      refused(
        () => check(options),
        'options',
        new RegExp(`no option "${name}"; it has: ttlMs, waitMs, signal`),
      )
    },
  )

  test('a misspelt one is refused even if nothing is given for it', () => {
    refused(() => check({ ttlms: undefined }), 'options', /no option "ttlms"/)
  })

  test.each([null, 5_000, '5s', true, [], () => {}, Symbol('s'), 1n])('%s is no options object', (options) =>
    refused(() => check(options), 'options', /must be an object, not /),
  )
})

describe('other options', () => {
  test('a signal is an AbortSignal', () => {
    const { signal } = new AbortController()
    assert.equal(checkSignal(signal), signal)
    assert.equal(checkSignal(undefined), undefined)
    for (const value of [null, new AbortController(), { aborted: false }, 'signal'])
      refused(() => checkSignal(value), 'signal', /must be an AbortSignal/)
  })

  test('a callback is a function', () => {
    const callback = () => {}
    assert.equal(checkCallback('onJeopardy', callback), callback)
    assert.equal(checkCallback('onJeopardy', undefined), undefined)
    for (const value of [null, {}, 'f', true])
      refused(() => checkCallback('onJeopardy', value), 'onJeopardy', /must be a function, not /)
  })

  test('a note is short and printable', () => {
    assert.equal(checkNote('nightly run'), 'nightly run')
    refused(() => checkNote(''), 'note', /must not be empty/)
    refused(() => checkNote('a\nb'), 'note', /control characters/)
    refused(() => checkNote('n'.repeat(1_025)), 'note', /at most 1024 bytes/)
  })

  test('data may be empty and of any characters but zero, up to 4 KiB of UTF-8', () => {
    for (const data of ['', '\u0001\n', 'd'.repeat(4_096), '\u00e9'.repeat(2_048)])
      assert.equal(checkData(data), data)
    refused(() => checkData('d'.repeat(4_097)), 'data', /at most 4096 bytes of UTF-8; it has 4097/)
    refused(() => checkData('\u00e9'.repeat(2_049)), 'data', /at most 4096 bytes of UTF-8; it has 4098/)
    refused(() => checkData('a\u0000b'), 'data', /U\+0000/)
    refused(() => checkData('\ud800'), 'data', /well-formed/)
    for (const value of [null, undefined, 5, {}, Buffer.from('x')])
      refused(() => checkData(value), 'data', /must be a string, not /)
  })
})
