import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { instantOf } from '../base/clock.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { KeptClaim } from './kept-claim.ts'

function keep(renew?: () => Promise<boolean>) {
  const clock = createFakeClock()
  const kept = new KeptClaim({
    clock,
    resource: 's/k',
    since: instantOf(clock),
    ttlMs: 15_000,
    ...(renew !== undefined && { renew }),
  })
  return { clock, kept }
}

describe('a kept claim', () => {
  test('G3 without renewal it is lost at its time less drift, by a timer and by a read', async () => {
    const { clock, kept } = keep()
    assert.equal(kept.remainingMs, 15_000 - 152)
    const { signal } = kept
    await clock.advance(14_847)
    assert.equal(signal.aborted, false)
    await clock.advance(1)
    assert.equal(signal.aborted, true)
    assert.equal(signal.reason.code, 'LEASE_LOST')
    assert.equal(signal.reason.reason, 'expired')
    assert.equal(kept.remainingMs, 0)
  })

  test('G3 it is renewed every third of its time, and counts from the sending', async () => {
    let renewals = 0
    const { clock, kept } = keep(async () => ++renewals > 0)
    await clock.advance(60_000)
    assert.equal(renewals, 12)
    assert.equal(kept.signal.aborted, false)
    kept.stop()
    await clock.advance(60_000)
    assert.equal(renewals, 12)
    assert.equal(clock.pendingTimers, 0)
  })

  test('T16 a renewal that is never answered does not keep it alive', async () => {
    const { clock, kept } = keep(() => new Promise(() => {}))
    await clock.advance(14_848)
    assert.equal(kept.signal.aborted, true)
    assert.equal(kept.signal.reason.reason, 'unreachable')
  })

  test('T30 a renewal that fails is tried again, until one succeeds or the time is over', async () => {
    let renewals = 0
    const { clock, kept } = keep(async () => {
      renewals++
      if (renewals < 4) throw new Error('reset')
      return true
    })
    await clock.advance(14_000)
    assert.equal(kept.signal.aborted, false)
    assert.ok(renewals >= 4)
    const lost = keep(() => Promise.reject(new Error('reset')))
    await lost.clock.advance(15_000)
    assert.equal(lost.kept.signal.aborted, true)
  })

  test.each(['stopped', 'lost'])(
    'a renewal that fails when the claim is %s is not tried again',
    async (end) => {
      let renewals = 0
      const answer = Promise.withResolvers<boolean>()
      const { clock, kept } = keep(() => {
        renewals++
        return answer.promise
      })
      await clock.advance(5_000)
      if (end === 'stopped') kept.stop()
      else kept.lose('taken-over')
      answer.reject(new Error('reset'))
      await clock.advance(60_000)
      assert.equal(renewals, 1)
      assert.equal(clock.pendingTimers, 0)
    },
  )

  test('G4 told that it is another’s, it is lost at once, and nothing revives it', async () => {
    const answers = [false, true]
    const { clock, kept } = keep(async () => answers.shift() ?? true)
    await clock.advance(5_000)
    assert.equal(kept.signal.reason.reason, 'taken-over')
    assert.equal(kept.confirm(instantOf(clock), 15_000), false)
    await clock.advance(60_000)
    assert.equal(answers.length, 1, 'a lost claim is not renewed')
    assert.equal(kept.remainingMs, 0)
  })

  test('G4 a confirmation that comes after the deadline does not revive it, also if no timer has come', () => {
    const { clock, kept } = keep()
    const since = instantOf(clock)
    clock.block(15_000)
    assert.equal(kept.confirm(since, 15_000), false)
    assert.equal(kept.confirm(instantOf(clock), 15_000), false)
    assert.equal(kept.signal.aborted, true)
  })

  test('one that is stopped has no time left, and is not lost', async () => {
    const { clock, kept } = keep()
    kept.stop()
    assert.equal(kept.remainingMs, 0)
    await clock.advance(60_000)
    assert.equal(kept.signal.aborted, false)
  })

  test('a claim whose answer took most of its time is renewed before the rest is over', async () => {
    const clock = createFakeClock()
    const since = instantOf(clock)
    await clock.advance(14_000)
    let renewals = 0
    const kept = new KeptClaim({
      clock,
      resource: 's/k',
      since,
      ttlMs: 15_000,
      renew: async () => ++renewals > 0,
    })
    await clock.advance(847)
    assert.equal(renewals, 1)
    assert.equal(kept.signal.aborted, false)
    kept.stop()
  })

  test('T3 a wall clock that is stepped forward, and a suspended machine, end it early', () => {
    const { clock, kept } = keep()
    clock.stepWall(3_600_000)
    assert.equal(kept.signal.aborted, true)
  })
})
