import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { tableRows } from '../../test/markdown-table.ts'
import { LOCK_CAPACITY } from '../spi.ts'
import * as errors from './errors.ts'
import {
  AcquireTimeoutError,
  BackendUnavailableError,
  CapacityMismatchError,
  ClosedError,
  ConflictError,
  type ErrorByCode,
  type ErrorCode,
  FenceForeignError,
  FenceInvalidError,
  type FenceProblem,
  FenceStaleError,
  HoldfastError,
  InvalidArgumentError,
  isHoldfastError,
  KeyReusedError,
  LeaseLostError,
  type LossReason,
  NotCommittedError,
  outcomeOf,
  QueueFullError,
  quote,
  StoredFailureError,
  UnsupportedError,
} from './errors.ts'
import { makeFence } from './fence.ts'

const fenceFor = (name: string) =>
  makeFence({ issuer: 'here', name, mode: 'exclusive', token: 2n ** 60n + 1n, grant: 'g'.repeat(22) })

/** One error of each code, about a resource of this name. The compiler sees to it that none is missing. */
const samples: { [C in ErrorCode]: (name: string) => ErrorByCode[C] } = {
  ACQUIRE_TIMEOUT: (name) => new AcquireTimeoutError(name, 29_999.6),
  QUEUE_FULL: (name) => new QueueFullError(name, 3),
  LEASE_LOST: (name) => new LeaseLostError(name, 'expired'),
  FENCE_STALE: (name) => new FenceStaleError(fenceFor(name), 2n ** 62n + 1n),
  FENCE_FOREIGN: (name) => new FenceForeignError(fenceFor(name), ['there', 'elsewhere']),
  FENCE_INVALID: () => new FenceInvalidError('bad-signature'),
  BACKEND_UNAVAILABLE: () => new BackendUnavailableError('memory', 'keep-alive: no answer', 'unknown'),
  CAPACITY_MISMATCH: (name) => new CapacityMismatchError(name, LOCK_CAPACITY, 3),
  INVALID_ARGUMENT: () => new InvalidArgumentError('ttlMs', 'must be a number, not "15s".'),
  UNSUPPORTED: () => new UnsupportedError('memory cannot do that.'),
  CLOSED: () => new ClosedError(),
  CONFLICT: () => new ConflictError('Others changed it.'),
  KEY_REUSED: (name) => new KeyReusedError('payments', name),
  STORED_FAILURE: (name) => new StoredFailureError('payments', name, { message: 'declined' }),
  NOT_COMMITTED: (name) => new NotCommittedError('payments', name),
}
const codes = Object.keys(samples) as ErrorCode[]

describe('every error', () => {
  test.each(codes)('G11 %s has its code, its class and a message', (code) => {
    const error = samples[code]('sku:42')
    assert.equal(error.code, code)
    assert.equal(typeof error.retryable, 'boolean')
    assert.equal(error.name, error.constructor.name)
    assert.ok(error instanceof HoldfastError && error instanceof Error)
    assert.match(String(error), new RegExp(`^${error.name}: ..`))
    assert.match(error.message, /\.$/, 'whole sentences')
    assert.ok(isHoldfastError(error) && isHoldfastError(error, code))
    for (const other of codes) assert.equal(isHoldfastError(error, other), other === code)
  })

  test('G11 every class that is exported has a code of its own', () => {
    const classes = Object.values(errors).filter(
      (value) => typeof value === 'function' && value.prototype instanceof HoldfastError,
    )
    const sampled = codes.map((code) => samples[code]('n').constructor)
    assert.deepEqual(new Set(classes), new Set(sampled))
    assert.equal(sampled.length, new Set(sampled).size)
  })

  test.each(codes)('%s cuts a huge name short and shows control characters escaped', (code) => {
    const { message } = samples[code](`evil\n\u001b[31m${'x'.repeat(1e6)}`)
    assert.ok(message.length < 600, `${message.length} characters`)
    assert.ok(!/\p{Cc}/u.test(message), 'no control characters')
  })

  test.each(codes)('%s keeps its cause, where it takes one', (code) => {
    const cause = new Error('socket hang up')
    const withCause: Partial<Record<ErrorCode, HoldfastError>> = {
      LEASE_LOST: new LeaseLostError('n', 'unreachable', { cause }),
      BACKEND_UNAVAILABLE: new BackendUnavailableError('b', 'w', 'unknown', { cause }),
      INVALID_ARGUMENT: new InvalidArgumentError('a', 'is wrong.', { cause }),
      UNSUPPORTED: new UnsupportedError('no.', { cause }),
    }
    if (withCause[code]) assert.equal(withCause[code].cause, cause)
    assert.ok(!('cause' in samples[code]('n')), 'and has none otherwise')
  })
})

describe('what they say', () => {
  test('a timeout: how long, and what to do', () => {
    const error = samples.ACQUIRE_TIMEOUT('sku:42')
    assert.equal(error.resource, 'sku:42')
    assert.equal(error.waitedMs, 29_999.6)
    assert.match(error.message, /"sku:42" was not free within 30000 ms.*inspect.*raise waitMs/)
  })

  test('T42 tokens are shown with all their digits', () => {
    const { message, highest } = samples.FENCE_STALE('n')
    assert.match(message, /token 1152921504606846977 is refused/)
    assert.match(message, /highest token seen: 4611686018427387905/)
    assert.equal(highest, 4_611_686_018_427_387_905n)
  })

  test('an unknown outcome is called unknown', () => {
    const unknown = new BackendUnavailableError('memory', 'release of "n": reset', 'unknown')
    assert.equal(unknown.message, 'memory: release of "n": reset. It may or may not have taken effect.')
    const notApplied = new BackendUnavailableError('memory', 'refused', 'not-applied')
    assert.equal(notApplied.message, 'memory: refused. It has not taken effect.')
    assert.deepEqual([unknown.outcome, notApplied.outcome], ['unknown', 'not-applied'])
  })

  test('a loss says its reason, and each reason reads differently', () => {
    const reasons = Object.keys(lossReasons) as LossReason[]
    const messages = reasons.map((reason) => new LeaseLostError('n', reason).message)
    assert.equal(new Set(messages).size, reasons.length)
    for (const message of messages) assert.match(message, /^The lease on "n" is lost: \S.*Stop the work/)
  })

  test('a lease whose time ran out says how much it had, and no other loss does', () => {
    const reasons = Object.keys(lossReasons) as LossReason[]
    const telling = reasons.filter((reason) =>
      /Its TTL was 9000 ms\./.test(new LeaseLostError('n', reason, { ttlMs: 9_000 }).message),
    )
    assert.deepEqual(telling.sort(), ['expired', 'unreachable'])
    assert.equal(new LeaseLostError('n', 'expired', { ttlMs: 9_000 }).ttlMs, 9_000)
    assert.doesNotMatch(new LeaseLostError('n', 'expired').message, /TTL/)
  })

  test('a lease that its own holder has released: the usual cause is a missing await', () => {
    assert.match(new LeaseLostError('n', 'released').message, /is an await missing/)
  })

  test('a refused fence says what is wrong with it', () => {
    const problems: Record<FenceProblem, RegExp> = {
      malformed: /not a fence/,
      unsigned: /signed fence is required/,
      'unknown-key': /key that is not known/,
      'bad-signature': /signature does not match/,
      'not-a-fence': /pass lease\.fence/,
      missing: /the request has none/,
      'wrong-name': /for another name/,
    }
    for (const [problem, rule] of Object.entries(problems)) {
      const error = new FenceInvalidError(problem as FenceProblem, 'a detail')
      assert.match(error.message, rule)
      assert.match(error.message, /\(a detail\)/)
      assert.equal(error.problem, problem)
    }
  })

  test('quoted names are well-formed, and cut ones look cut', () => {
    assert.equal(quote('a"b\n'), '"a\\"b\\n"')
    assert.equal(quote('x'.repeat(118)), `"${'x'.repeat(118)}"`)
    for (let length = 100; length < 140; length++) {
      const quoted = quote(`${'x'.repeat(length)}${'\u{1f512}'.repeat(50)}`)
      assert.ok(quoted.isWellFormed(), 'no half of a character')
      assert.ok(quoted.length <= 120 && quoted.endsWith('…"'))
    }
  })
})

describe('isHoldfastError', () => {
  test('G11 it works across duplicate installs, where instanceof does not', async () => {
    const path = './errors.ts?another-copy'
    const copy: typeof errors = await import(/* @vite-ignore */ path)
    assert.notEqual(copy.ClosedError, ClosedError, 'it is another copy')
    const theirs = new copy.AcquireTimeoutError('n', 1)
    assert.ok(!(theirs instanceof HoldfastError))
    assert.ok(isHoldfastError(theirs))
    assert.ok(isHoldfastError(theirs, 'ACQUIRE_TIMEOUT'))
    assert.ok(!isHoldfastError(theirs, 'LEASE_LOST'))
    assert.ok(copy.isHoldfastError(new ClosedError(), 'CLOSED'))
    assert.equal(outcomeOf(new copy.BackendUnavailableError('b', 'w', 'not-applied')), 'not-applied')
  })

  test('it takes nothing else for one of ours', () => {
    const lookalike = Object.assign(new Error('x'), {
      code: 'LEASE_LOST',
      retryable: false,
      name: 'LeaseLostError',
    })
    const strangers = [
      lookalike,
      { code: 'CLOSED' },
      null,
      undefined,
      'CLOSED',
      5,
      new Error('CLOSED'),
      Symbol('x'),
    ]
    for (const stranger of strangers) {
      assert.equal(isHoldfastError(stranger), false)
      assert.equal(isHoldfastError(stranger, 'CLOSED'), false)
    }
  })

  test('the mark is invisible where errors are printed or sent', () => {
    assert.deepEqual(Object.keys(new ClosedError()).sort(), ['code', 'retryable'])
    assert.ok(!Object.getOwnPropertySymbols({ ...new ClosedError() }).length)
  })
})

describe('outcomeOf', () => {
  test('only what is known not to have happened is called not applied', () => {
    assert.equal(outcomeOf(new BackendUnavailableError('b', 'w', 'unknown')), 'unknown')
    assert.equal(outcomeOf(new BackendUnavailableError('b', 'w', 'not-applied')), 'not-applied')
    for (const error of [new Error('reset'), undefined, null, 'gone', { outcome: 'not-applied' }])
      assert.equal(outcomeOf(error), 'unknown')
  })

  test('our own refusals come before anything is sent', () => {
    for (const code of codes)
      assert.equal(outcomeOf(samples[code]('n')), code === 'BACKEND_UNAVAILABLE' ? 'unknown' : 'not-applied')
  })
})

const lossReasons: Record<LossReason, true> = {
  expired: true,
  'taken-over': true,
  'session-gone': true,
  unreachable: true,
  deleted: true,
  'force-released': true,
  'max-hold': true,
  closed: true,
  dropped: true,
  released: true,
}

describe('docs/reference/errors.md', () => {
  test('lists every code with its class and whether to retry, and nothing else', () => {
    const documented = tableRows('errors.md', 'Errors').map((row) => [row.code, row.class, row.retryable])
    const actual = codes.map((code) => {
      const error = samples[code]('n')
      return [code, error.name, error.retryable ? 'yes' : 'no']
    })
    assert.deepEqual(documented, actual)
  })

  test('says of every code when it happens and what to do', () => {
    for (const row of tableRows('errors.md', 'Errors'))
      for (const column of ['when', 'what to do']) assert.match(row[column] ?? '', /^\S.*\.$/, row.code)
  })

  test('lists every reason of a loss, and nothing else', () => {
    const documented = tableRows('errors.md', 'Why a lease was lost')
    assert.deepEqual(
      documented.map(({ reason }) => reason),
      Object.keys(lossReasons),
    )
  })
})
