import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import {
  BackendUnavailableError,
  ClosedError,
  ConflictError,
  FenceForeignError,
  FenceInvalidError,
  type FenceProblem,
  FenceStaleError,
  isHoldfastError,
} from '../../base/errors.ts'
import { type HoldfastEvents, onEvent } from '../../base/events.ts'
import { makeFence } from '../../base/fence.ts'
import { type FenceKey, formatFence } from '../../base/fence-text.ts'
import { problemOf, type ReadFenceOptions, readFence } from '../http.ts'

const key: FenceKey = { id: 'k1', secret: new Uint8Array(32).fill(7) }
const other: FenceKey = { id: 'k2', secret: new Uint8Array(32).fill(8) }
const fence = makeFence({ issuer: 'bank', name: 'sku:42', mode: 'exclusive', token: 34n, grant: 'abc' })
const text = formatFence(fence)
const signed = formatFence(fence, { signWith: key })
const unsigned = { unsigned: true, name: 'sku:42' } as const
const verified = { keys: [key], name: 'sku:42' } as const
const plain = { ...unsigned, plainToken: { issuer: 'bank' } }

function refusal(headers: Record<string, string>, options: ReadFenceOptions): FenceProblem {
  try {
    readFence(headers, options)
  } catch (error) {
    if (isHoldfastError(error, 'FENCE_INVALID')) return error.problem
    throw error
  }
  assert.fail('was not refused')
}

describe('readFence', () => {
  test('reads the header of a Request and of node, signed and unsigned', () => {
    assert.deepEqual(readFence(new Headers({ 'Holdfast-Fence': signed }), verified), fence)
    assert.deepEqual(readFence({ 'holdfast-fence': text }, unsigned), fence)
    assert.deepEqual(readFence({ get: 'no function', 'holdfast-fence': [text] }, unsigned), fence)
  })

  test('reads a plain token as an exclusive fence of the one issuer, for the name of the route', () => {
    const { token, grant, name, issuer, mode } = readFence({ 'x-fencing-token': '34' }, plain)
    assert.deepEqual({ token, grant, name, issuer, mode }, { ...fence, grant: 't34' })
  })

  test.each<[string, FenceProblem, Record<string, string>, ReadFenceOptions]>([
    ['no header', 'missing', {}, verified],
    ['a plain token that was not asked for', 'missing', { 'x-fencing-token': '34' }, unsigned],
    ['both headers', 'malformed', { 'holdfast-fence': text, 'x-fencing-token': '34' }, plain],
    [
      'both headers, one of them empty',
      'malformed',
      { 'holdfast-fence': text, 'x-fencing-token': '' },
      unsigned,
    ],
    ['a header that was sent twice', 'malformed', { 'holdfast-fence': `${text}, ${text}` }, unsigned],
    ['an empty header', 'malformed', { 'holdfast-fence': '' }, unsigned],
    ['a token of 0', 'malformed', { 'x-fencing-token': '0' }, plain],
    ['a token with a sign', 'malformed', { 'x-fencing-token': '+34' }, plain],
    ['a token above 63 bits', 'malformed', { 'x-fencing-token': '9223372036854775808' }, plain],
    ['a token for a route without a name', 'malformed', { 'x-fencing-token': '34' }, { ...plain, name: '' }],
    ['no signature', 'unsigned', { 'holdfast-fence': text }, verified],
    ['a signature that nobody verifies', 'unknown-key', { 'holdfast-fence': signed }, unsigned],
    ['the key of another', 'unknown-key', { 'holdfast-fence': signed }, { ...verified, keys: [other] }],
    ['a changed text', 'bad-signature', { 'holdfast-fence': signed.replace('/34/', '/35/') }, verified],
    [
      'the fence of another name',
      'wrong-name',
      { 'holdfast-fence': signed },
      { ...verified, name: 'sku:41' },
    ],
  ])('refuses %s', (_, problem, headers, options) => {
    const seen: HoldfastEvents['guard-refused'][] = []
    const stop = onEvent('guard-refused', (event) => seen.push(event))
    try {
      assert.equal(refusal(headers, { ...options, guard: { name: 'stock' } }), problem)
    } finally {
      stop()
    }
    assert.deepEqual(seen, [{ guard: 'stock', name: null, token: null, reason: 'invalid', highest: null }])
  })

  test.each<[string, object]>([
    ['neither keys nor unsigned', { name: 'n' }],
    ['both keys and unsigned', { name: 'n', keys: [key], unsigned: true }],
    ['unsigned: false', { name: 'n', unsigned: false }],
    ['no key in the list', { name: 'n', keys: [] }],
    ['a key that is too short', { name: 'n', keys: [{ id: 'k', secret: new Uint8Array(8) }] }],
    ['a plain token beside keys', { name: 'n', keys: [key], plainToken: { issuer: 'bank' } }],
    ['a plain token without an issuer', { name: 'n', unsigned: true, plainToken: {} }],
    ['an unknown option', { name: 'n', unsigned: true, key }],
    ['no name', { unsigned: true }],
  ])('INVALID_ARGUMENT for %s', (_, options) => {
    assert.throws(() => readFence({}, options as ReadFenceOptions), { code: 'INVALID_ARGUMENT' })
  })
})

describe('problemOf', () => {
  const invalid = (problem: FenceProblem) => new FenceInvalidError(problem, 'secret detail')
  test.each<[number, unknown, boolean]>([
    [428, invalid('missing'), false],
    [400, invalid('malformed'), false],
    [400, invalid('not-a-fence'), false],
    [403, invalid('unsigned'), false],
    [403, invalid('unknown-key'), false],
    [403, invalid('bad-signature'), false],
    [403, invalid('wrong-name'), false],
    [403, new FenceForeignError(fence, ['secret detail']), false],
    [409, new FenceStaleError(fence, 4711n), false],
    [503, new BackendUnavailableError('sqlite', 'secret detail', 'unknown'), true],
    [503, new ConflictError('secret detail.'), true],
    [503, new ClosedError('secret detail'), true],
  ])('%i for %s', (status, error, retryable) => {
    const problem = problemOf(error)
    assert.ok(problem)
    const { document, headers } = problem
    assert.deepEqual([problem.status, document.status, document.retryable], [status, status, retryable])
    assert.equal(headers['content-type'], 'application/problem+json')
    assert.equal(headers['retry-after'], retryable ? '1' : undefined)
    assert.equal(isHoldfastError(error) && document.code === error.code, true)
    assert.doesNotMatch(JSON.stringify(document), /secret|4711|abc|sku/)
  })

  test('says whether a request of unknown outcome may have taken effect', () => {
    const outcomeOf = (error: unknown) => problemOf(error)?.document.outcome
    assert.equal(outcomeOf(new BackendUnavailableError('sqlite', 'no answer', 'unknown')), 'unknown')
    assert.equal(outcomeOf(new ConflictError('Two collided.')), 'not-applied')
  })

  test('leaves errors of others to the server', () => {
    assert.equal(problemOf(new Error('of the handler')), null)
    assert.equal(problemOf(null), null)
  })
})
