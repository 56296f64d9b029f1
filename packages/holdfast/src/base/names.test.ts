import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { createRig } from '../../test/rig.ts'
import { limits } from './defaults.ts'
import { isHoldfastError } from './errors.ts'
import {
  checkName,
  checkNamespace,
  checkPrefix,
  checkText,
  compareNames,
  escapeName,
  unescapeName,
  utf8Length,
} from './names.ts'

/** Whole Unicode, without what names refuse. */
const anyName = fc.string({ unit: 'binary', minLength: 1, maxLength: 60 }).filter(isAccepted)

function isAccepted(name: string): boolean {
  try {
    return checkName(name) === name
  } catch {
    return false
  }
}

function refused(check: () => unknown, rule: RegExp, argument = 'name'): void {
  assert.throws(check, (error) => {
    assert.ok(isHoldfastError(error, 'INVALID_ARGUMENT'), String(error))
    assert.equal(error.argument, argument)
    assert.match(error.message, rule)
    assert.ok(error.message.startsWith(argument), 'it says which argument')
    return true
  })
}

describe('names that are taken', () => {
  test.each([
    'invoices/2026-11',
    'sku:42',
    '__proto__',
    'constructor',
    'hasOwnProperty',
    'a.b',
    '.hidden',
    '...',
    'a/..b/.c',
    'with space',
    '; DROP TABLE names; --',
    "return redis.call('FLUSHALL')",
    '%2e%2e',
    '\\..\\',
    '*?[a]',
    '\u00e9\u4e2d\u{1f512}',
    '\u202eright-to-left',
    'a'.repeat(255),
    '\u{1f512}'.repeat(63),
    '\u00e9'.repeat(127),
  ])('%j', (name) => assert.equal(checkName(name), name))

  test('__proto__ is a name like any other, also for the engine', async () => {
    const rig = createRig()
    const locker = rig.locker()
    const lease = await locker.acquire('__proto__')
    assert.equal(await locker.tryAcquire('__proto__'), null)
    assert.equal((await locker.inspect('__proto__'))?.holders.length, 1)
    assert.equal(await locker.inspect('constructor'), null)
    assert.equal(await lease.release(), 'released')
  })
})

describe('names that are refused', () => {
  test.each<[string, string, RegExp]>([
    ['empty', '', /must not be empty/],
    ['256 bytes', 'a'.repeat(256), /at most 255 bytes of UTF-8; it has 256/],
    ['256 bytes in 128 characters', '\u00e9'.repeat(128), /at most 255 bytes.* has 256/],
    ['256 bytes in 64 characters', '\u{1f512}'.repeat(64), /at most 255 bytes.* has 256/],
    ['one byte too many at the end', `${'a'.repeat(254)}\u00e9`, /at most 255 bytes.* has 256/],
    ['a megabyte', 'x'.repeat(2 ** 20), /at most 255 bytes/],
    ['a zero byte', 'a\u0000b', /control characters/],
    ['a new line', 'a\nb', /control characters/],
    ['a new line at the end', 'abc\n', /control characters/],
    ['a tab', '\tabc', /control characters/],
    ['an escape', 'a\u001b[31m', /control characters/],
    ['delete', 'a\u007f', /control characters/],
    ['a C1 control', 'a\u0085', /control characters/],
    ['a line separator', 'a\u2028', /control characters/],
    ['a paragraph separator', 'a\u2029', /control characters/],
    ['a lone high surrogate', 'a\ud83d', /well-formed Unicode.*lone surrogate/],
    ['a lone low surrogate', '\udd12a', /well-formed Unicode.*lone surrogate/],
    ['surrogates in the wrong order', '\udd12\ud83d', /well-formed Unicode/],
    ['a dot', '.', /segment \./],
    ['two dots', '..', /segment \.\./],
    ['a way up', 'a/../b', /segment \.\./],
    ['a way up at the end', 'a/..', /segment \.\./],
    ['a dot in between', 'a/./b', /segment \./],
    ['a slash', '/', /empty segments.*no slash at its start or end/],
    ['a slash at the start', '/a', /empty segments/],
    ['a slash at the end', 'a/', /empty segments/],
    ['two slashes', 'a//b', /empty segments.*no two in a row/],
  ])('%s', (_, name, rule) => refused(() => checkName(name), rule))

  test.each<[string, unknown]>([
    ['number', 42],
    ['undefined', undefined],
    ['object', null],
    ['object', {}],
    ['object', ['a']],
    ['object', new String('a')],
    ['symbol', Symbol('a')],
    ['bigint', 1n],
    ['boolean', true],
    ['function', () => 'a'],
  ])('a %s', (type, value) => refused(() => checkName(value), new RegExp(`must be a string, not ${type}`)))

  test('the error says which argument it was', () => {
    refused(() => checkName('', 'names'), /must not be empty/, 'names')
  })

  test('an object that pretends to be a string is not asked to', () => {
    const pretender = {
      toString: () => assert.fail('asked'),
      [Symbol.toPrimitive]: () => assert.fail('asked'),
    }
    refused(() => checkName(pretender), /must be a string/)
  })

  test('fast names and slow names obey the same rules', () => {
    // Most names take a short cut; what it lets through the long way must let through as well.
    const likely = fc.string({ unit: fc.constantFrom(...'aZ09_:@.-/ \n\u00e9'), maxLength: 140 })
    fc.assert(
      fc.property(likely, (name) => {
        const segments = name.split('/')
        const expected =
          name !== '' && !/\n/.test(name) && segments.every((each) => !['', '.', '..'].includes(each))
        assert.equal(isAccepted(name), expected)
      }),
      { numRuns: 2_000 },
    )
  })
})

describe('other texts', () => {
  test('a namespace obeys the rules of names, with a limit of its own', () => {
    assert.equal(checkNamespace('tenants/a'), 'tenants/a')
    assert.equal(checkNamespace('n'.repeat(100)), 'n'.repeat(100))
    refused(() => checkNamespace('n'.repeat(101)), /at most 100 bytes/, 'namespace')
    refused(() => checkNamespace('a//b'), /empty segments/, 'namespace')
    refused(() => checkNamespace('..'), /segment/, 'namespace')
    refused(() => checkNamespace(7), /must be a string/, 'namespace')
  })

  test('a prefix is the start of a name: it may be empty or end with a slash', () => {
    assert.equal(checkPrefix(undefined), '')
    assert.equal(checkPrefix(''), '')
    assert.equal(checkPrefix('invoices/'), 'invoices/')
    refused(() => checkPrefix(null), /must be a string/, 'prefix')
    refused(() => checkPrefix('a\n'), /control/, 'prefix')
    refused(() => checkPrefix('p'.repeat(256)), /at most 255 bytes/, 'prefix')
  })

  test('a text may have slashes and dots, and is bounded in bytes', () => {
    assert.equal(checkText('note', '/../', limits.noteBytes), '/../')
    assert.equal(checkText('note', '\u00e9'.repeat(512), 1_024).length, 512)
    refused(() => checkText('note', '\u00e9'.repeat(513), 1_024), /at most 1024 bytes.* has 1026/, 'note')
  })

  test('lengths are counted in bytes of UTF-8', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) =>
        assert.equal(utf8Length(text), Buffer.byteLength(text)),
      ),
    )
  })
})

describe('escaped names', () => {
  test('every name comes back as it was', () => {
    fc.assert(
      fc.property(anyName, (name) => assert.equal(unescapeName(escapeName(name)), name)),
      { numRuns: 2_000 },
    )
  })

  test('they are one safe path segment: never empty, `.` or `..`', () => {
    const nasty = fc.constantFrom('.', '..', '/', '%', '%2e', '..%2f', '\\', '\u0000', ' ', '~', '+', '*')
    fc.assert(
      fc.property(
        fc.oneof(
          anyName,
          nasty,
          fc.array(nasty, { minLength: 1 }).map((all) => all.join('')),
        ),
        (name) => {
          assert.match(escapeName(name), /^(?:[A-Za-z0-9_:@-]|%[0-9a-f]{2})+$/)
        },
      ),
      { numRuns: 2_000 },
    )
  })

  test('two names never have the same escape', () => {
    fc.assert(fc.property(anyName, anyName, (a, b) => assert.equal(escapeName(a) === escapeName(b), a === b)))
    assert.notEqual(escapeName('%2e'), escapeName('.'))
    assert.notEqual(escapeName('a/b'), escapeName('a%2fb'))
  })
})

describe('the order of names', () => {
  const sign = (number: number) => Math.sign(number)

  test('it is the order of their UTF-8 bytes', () => {
    fc.assert(
      fc.property(anyName, anyName, (a, b) => {
        assert.equal(sign(compareNames(a, b)), sign(Buffer.compare(Buffer.from(a), Buffer.from(b))))
        assert.equal(sign(compareNames(a, b)), -sign(compareNames(b, a)) || 0)
      }),
    )
  })

  test('it is neither the order of UTF-16 nor that of a language', () => {
    // In UTF-16 the lock (a surrogate pair) comes first; in bytes, as on every engine, the other does.
    assert.ok('\u{1f512}' < '\uff5e')
    assert.ok(compareNames('\u{1f512}', '\uff5e') > 0)
    assert.ok(compareNames('Z', 'a') < 0)
    assert.ok(compareNames('a', '\u00e4') < 0)
    assert.ok(compareNames('a', 'a/b') < 0)
    assert.equal(compareNames('a', 'a'), 0)
  })
})
