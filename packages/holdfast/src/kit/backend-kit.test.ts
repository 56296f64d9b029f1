import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { callWith } from '../base/aborting.ts'
import { elapsedMs, instantOf } from '../base/clock.ts'
import { isHoldfastError } from '../base/errors.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { cancelledCall, checkIdentity, prolongedSince, throwIfCancelled } from './backend-kit.ts'

describe('the identity of a backend', () => {
  test('has defaults, but for the issuer, which is the engine’s to name', () => {
    assert.deepEqual(checkIdentity({}), { namespace: 'default', issuer: undefined, epoch: 0 })
  })

  test('is taken as it was given', () => {
    const given = { namespace: 'tests/one', issuer: 'the bank', epoch: 2_047 }
    assert.deepEqual(checkIdentity(given), given)
  })

  test('is refused where the names of locks and issuers would be', () => {
    const refused: [string, object][] = [
      ['namespace', { namespace: 'a//b' }],
      ['namespace', { namespace: 'n'.repeat(101) }],
      ['issuer', { issuer: '' }],
      ['issuer', { issuer: null }],
      ['epoch', { epoch: 2_048 }],
      ['epoch', { epoch: 1.5 }],
    ]
    for (const [argument, options] of refused)
      assert.throws(
        () => checkIdentity(options),
        (error) => isHoldfastError(error, 'INVALID_ARGUMENT') && error.argument === argument,
      )
  })
})

test('T64 an attached session counts from its last prolongation, on both clocks', async () => {
  const clock = createFakeClock()
  const prolonged = instantOf(clock)
  await clock.advance(300)
  const since = prolongedSince(instantOf(clock), { ttlMs: 1_000, leftMs: 700 })
  assert.deepEqual(since, prolonged)
  assert.equal(elapsedMs(clock, since), 300)
})

describe('a call that is cancelled', () => {
  const reason = new Error('the user has gone home')

  test('before it was sent: it has not taken effect', () => {
    throwIfCancelled('acme', callWith())
    assert.throws(
      () => throwIfCancelled('acme', callWith(AbortSignal.abort(reason))),
      (error) =>
        isHoldfastError(error, 'BACKEND_UNAVAILABLE') &&
        error.outcome === 'not-applied' &&
        error.cause === reason &&
        /^acme: .*before it was sent/.test(error.message),
    )
  })

  test('on its way: unknown', () => {
    const error = cancelledCall('acme', AbortSignal.abort(reason), 'unknown')
    assert.equal(error.outcome, 'unknown')
    assert.equal(error.cause, reason)
  })
})
