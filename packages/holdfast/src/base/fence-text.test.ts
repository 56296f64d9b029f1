import assert from 'node:assert/strict'
import { createHmac, randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { eventsDuring } from '../../test/rig.ts'
import { limits } from './defaults.ts'
import { type FenceProblem, isHoldfastError } from './errors.ts'
import { type Fence, isFence, makeFence } from './fence.ts'
import { type FenceKey, formatFence, parseFence } from './fence-text.ts'

const MAX_TOKEN = 2n ** 63n - 1n
const key: FenceKey = { id: 'key-1', secret: randomBytes(32) }
const fence = makeFence({
  issuer: 'redis:prod/default',
  name: 'invoices/2026-11',
  mode: 'exclusive',
  token: 2n ** 53n + 1n,
  grant: 'abc_DEF-123',
})

test('text that is refused at a guard leaves a trace, without what the text says', async () => {
  const text = formatFence(fence)
  const told = await eventsDuring('guard-refused', async () => {
    assert.equal(parseFence(text, { guard: 'stock' }).token, fence.token)
    assert.throws(() => parseFence(text, { keys: [key] }), { code: 'FENCE_INVALID' })
    for (const wrong of ['', `${text}x`, text.replace('hf1', 'hf9')])
      assert.throws(() => parseFence(wrong, { keys: [key], guard: 'stock' }), { code: 'FENCE_INVALID' })
  })
  const refused = { guard: 'stock', name: null, token: null, reason: 'invalid', highest: null }
  assert.deepEqual(told, [refused, refused, refused])
})

function refuses(
  problem: FenceProblem,
  text: unknown,
  options?: { readonly keys?: readonly FenceKey[] },
): void {
  assert.throws(
    () => parseFence(text as string, options),
    (error) => isHoldfastError(error, 'FENCE_INVALID') && error.problem === problem,
    `${String(text).slice(0, 200)} should be ${problem}`,
  )
}

/** Every fence that can exist: names and issuers of any kind, tokens of all sizes. */
const fences: fc.Arbitrary<Fence> = fc
  .record({
    issuer: fc.string({ unit: 'binary', minLength: 1, maxLength: 60 }),
    name: fc.string({ unit: 'binary', minLength: 1, maxLength: 60 }),
    mode: fc.constantFrom('exclusive', 'shared'),
    token: fc.oneof(
      fc.bigInt({ min: 1n, max: MAX_TOKEN }),
      fc.constantFrom(1n, 2n ** 53n, 2n ** 53n + 1n, MAX_TOKEN),
    ),
    grant: fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/),
  })
  .map(makeFence)
  .filter(isFence)

describe('a fence as text', () => {
  test('looks as documented', () => {
    assert.equal(
      formatFence(fence),
      'hf1/redis%3Aprod%2Fdefault/invoices%2F2026-11/exclusive/9007199254740993/abc_DEF-123',
    )
    assert.match(formatFence(fence, { signWith: key }), /\/abc_DEF-123\/s1\/key-1\/[A-Za-z0-9_-]{43}$/)
  })

  test('T42 comes back exactly as it left, whatever its name, issuer and token, signed or not', () => {
    fc.assert(
      fc.property(fences, (each) => {
        const back = parseFence(formatFence(each))
        assert.ok(isFence(back))
        assert.deepEqual(back, each)
        assert.deepEqual(parseFence(formatFence(each, { signWith: key }), { keys: [key] }), each)
      }),
    )
  })

  test('is safe in a header and in a URL, and two fences never have the same', () => {
    fc.assert(
      fc.property(fences, fences, (a, b) => {
        const text = formatFence(a, { signWith: key })
        assert.match(text, /^[\x21-\x7e]+$/)
        assert.equal(
          formatFence(a) === formatFence(b),
          Object.values(parts(a)).join() === Object.values(parts(b)).join(),
        )
      }),
    )
  })

  test('the longest possible ones still fit', () => {
    const longest = makeFence({
      issuer: 'é'.repeat(limits.issuerBytes / 2),
      name: 'é'.repeat((limits.nameBytes - 1) / 2),
      mode: 'exclusive',
      token: MAX_TOKEN,
      grant: 'g'.repeat(64),
    })
    const longKey = { id: 'k'.repeat(64), secret: key.secret }
    assert.deepEqual(parseFence(formatFence(longest, { signWith: longKey }), { keys: [longKey] }), longest)
  })

  test('names that mean something to JavaScript mean nothing here', () => {
    for (const name of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
      const odd = makeFence({ ...parts(fence), name, issuer: name })
      const back = parseFence(formatFence(odd))
      assert.deepEqual(back, odd)
      assert.equal(Object.getPrototypeOf(back), Object.prototype)
    }
  })

  test('of a thing that is not a fence there is none', () => {
    for (const other of [parts(fence), { ...fence }, 5n, null, makeFence({ ...parts(fence), token: 0n })])
      assert.throws(() => formatFence(other as Fence), { code: 'FENCE_INVALID', problem: 'not-a-fence' })
  })
})

describe('T43 texts that are not what formatFence wrote', () => {
  const text = formatFence(fence)

  test('malformed ones are refused', () => {
    const malformed: unknown[] = [
      '',
      'hf1',
      `hf2${text.slice(3)}`,
      `HF1${text.slice(3)}`,
      `${text}/`,
      `/${text}`,
      ` ${text}`,
      `${text}\n`,
      text.replace('/exclusive/', '/permits/'),
      text.replace('/exclusive/', '//'),
      text.replace('%3A', ':'),
      text.replace('%3A', '%3a'),
      `${text.replace('%2F', '%252F')}%`,
      text.replace('redis', '%72edis'),
      text.replace('redis', '%E0%A4'),
      text.replace('redis', '%00'),
      text.replace('invoices%2F2026-11', 'a%2F%2Fb'),
      text.replace('invoices%2F2026-11', '..'),
      text.replace('invoices%2F2026-11', ''),
      text.split('/').slice(0, 5).join('/'),
      `${text}/s1/key-1`,
      `${text}/s2/key-1/AAAA`,
      JSON.stringify(parts(fence), (_, value) => (typeof value === 'bigint' ? Number(value) : value)),
      5,
      5n,
      null,
      undefined,
      {},
      [text],
    ]
    for (const each of malformed) {
      refuses('malformed', each)
      refuses('malformed', each, { keys: [key] })
    }
  })

  test('T42 tokens that are not plain decimal numbers of 63 bits are refused', () => {
    const tokens = [
      '0',
      '-1',
      '+1',
      '01',
      '1.0',
      '1e3',
      '9.007199254740993e15',
      '0x10',
      '1n',
      '١',
      '',
      ' 1',
      'NaN',
      'Infinity',
    ]
    for (const token of [
      ...tokens,
      String(MAX_TOKEN + 1n),
      '9'.repeat(19),
      '9'.repeat(20),
      '9'.repeat(1_000),
    ])
      refuses('malformed', text.replace('9007199254740993', token))
  })

  test('huge ones are refused before anything is done with them', () => {
    refuses('malformed', 'x'.repeat(100_000_000))
    refuses('malformed', '/'.repeat(4_097))
    refuses('malformed', `hf1/${'%41'.repeat(2_000)}/n/exclusive/1/g`)
  })

  test('any change to a text gives another fence or none, never the same one', () => {
    fc.assert(
      fc.property(fences, fc.nat(), fc.string({ minLength: 1, maxLength: 1 }), (each, at, char) => {
        const original = formatFence(each)
        const position = at % original.length
        const changed = original.slice(0, position) + char + original.slice(position + 1)
        if (changed === original) return
        try {
          assert.notDeepEqual(parseFence(changed), each)
        } catch (error) {
          if (!isHoldfastError(error, 'FENCE_INVALID')) throw error
        }
      }),
    )
  })
})

describe('signed fences', () => {
  const signed = formatFence(fence, { signWith: key })

  test('T43 a change of any byte is refused', () => {
    for (let position = 0; position < signed.length; position++) {
      for (const char of ['A', 'B', '0', '1', '/', '%', '-', ' ']) {
        const changed = signed.slice(0, position) + char + signed.slice(position + 1)
        if (changed === signed) continue
        assert.throws(() => parseFence(changed, { keys: [key] }), { code: 'FENCE_INVALID' }, changed)
      }
    }
  })

  test('T43 every single bit of the signature counts', () => {
    const signature = Buffer.from(signed.slice(signed.lastIndexOf('/') + 1), 'base64url')
    for (let bit = 0; bit < signature.length * 8; bit++) {
      const forged = Buffer.from(signature)
      forged[bit >> 3] = (forged[bit >> 3] ?? 0) ^ (1 << (bit & 7))
      refuses(
        'bad-signature',
        `${signed.slice(0, signed.lastIndexOf('/'))}/${forged.toString('base64url')}`,
        { keys: [key] },
      )
    }
  })

  test('T43 a shorter, longer, empty or differently written signature is refused', () => {
    const stem = signed.slice(0, signed.lastIndexOf('/') + 1)
    const signature = signed.slice(stem.length)
    for (const other of [
      '',
      signature.slice(0, -1),
      `${signature}A`,
      `${signature}=`,
      `${signature}${signature}`,
      signature.toUpperCase(),
    ])
      refuses('bad-signature', stem + other, { keys: [key] })
  })

  test('the key id and the version are signed, too', () => {
    const other = { id: 'key-2', secret: key.secret }
    refuses('bad-signature', signed.replace('key-1', 'key-2'), { keys: [other] })
    const fields = signed.split('/').slice(0, 6).join('/')
    const fieldsOnly = createHmac('sha256', key.secret).update(fields).digest('base64url')
    refuses('bad-signature', `${fields}/s1/key-1/${fieldsOnly}`, { keys: [key] })
  })

  test('a wrong key, an unknown key, and no key each have their own answer', () => {
    refuses('bad-signature', signed, { keys: [{ id: key.id, secret: randomBytes(32) }] })
    refuses('unknown-key', signed, { keys: [{ id: 'other', secret: key.secret }] })
    refuses('unknown-key', signed, { keys: [] })
    refuses('unknown-key', signed)
  })

  test('an unsigned fence is refused where a signature is required', () => {
    refuses('unsigned', formatFence(fence), { keys: [key] })
    refuses('unsigned', formatFence(fence), { keys: [] })
  })

  test('keys can be changed one after the other', () => {
    const next = { id: 'key-2', secret: randomBytes(64) }
    for (const signWith of [key, next])
      assert.deepEqual(parseFence(formatFence(fence, { signWith }), { keys: [key, next] }), fence)
    refuses('unknown-key', signed, { keys: [next] })
  })

  test('a signature does not make a malformed fence a good one', () => {
    const nonsense = 'hf1/i/n/exclusive/0/g/s1/key-1'
    const signature = createHmac('sha256', key.secret).update(nonsense).digest('base64url')
    refuses('malformed', `${nonsense}/${signature}`, { keys: [key] })
  })

  test('weak or nonsensical keys are refused', () => {
    const bad: unknown[] = [
      { id: 'k', secret: randomBytes(31) },
      { id: 'k', secret: 'a text of more than thirty-two characters' },
      { id: '', secret: key.secret },
      { id: 'a/b', secret: key.secret },
      { id: 'k'.repeat(65), secret: key.secret },
      {},
      null,
    ]
    for (const each of bad) {
      assert.throws(() => formatFence(fence, { signWith: each as FenceKey }), { code: 'INVALID_ARGUMENT' })
      assert.throws(() => parseFence(signed, { keys: [key, each as FenceKey] }), { code: 'INVALID_ARGUMENT' })
    }
  })
})

function parts({ issuer, name, mode, token, grant }: Fence) {
  return { issuer, name, mode, token, grant }
}

test('T43 a misspelt or nonsensical option does not turn verification off', () => {
  const forged = 'hf1/i/n/exclusive/9000000000000000000/g'
  const key = { id: 'k', secret: new Uint8Array(32) }
  for (const options of [{ key: [key] }, { keys: key }, { keys: 5 }, null, 7])
    assert.throws(() => parseFence(forged, options as never), { code: 'INVALID_ARGUMENT' }, String(options))
})
