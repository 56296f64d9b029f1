/** The state machine of a lease on its own, driven by many orders of events. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { instantOf } from '../base/clock.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { type LeaseHost, LeaseRecord } from './lease.ts'

const ttlMs = 1_000
const driftMs = 12

function createLease() {
  const clock = createFakeClock()
  let releases = 0
  const host: LeaseHost = {
    clock,
    about: { backend: 'test', namespace: 'default', holder: 'me' },
    epoch: 0,
    driftMs: () => driftMs,
    leaseLost: () => {},
    releaseAtEngine: async () => {
      releases++
      return 'released'
    },
  }
  const attempt = `${'p'.repeat(22)}.secret`
  const grant = { name: 'a', attempt, grantId: '1', token: 1n, since: instantOf(clock), ttlMs }
  const terms = {
    ttlMs,
    request: { name: 'a', mode: 'exclusive', weight: 1, capacity: 1, lockDelayMs: 0 },
    maxHoldMs: Number.POSITIVE_INFINITY,
    holdAtLeastMs: 0,
    warnHoldMs: Number.POSITIVE_INFINITY,
    onJeopardy: undefined,
  } as const
  const lease = new LeaseRecord(host, grant, 1n, terms)
  return { clock, lease, grant, releases: () => releases }
}

test('G4 no order of events leads out of lost or released, and the signal aborts exactly when it is lost', () => {
  const event = fc.oneof(
    fc.record({ kind: fc.constant('pass' as const), ms: fc.integer({ min: 0, max: 700 }) }),
    fc.record({ kind: fc.constantFrom('confirm', 'confirm-late', 'jeopardize', 'lose', 'release', 'read') }),
  )
  fc.assert(
    fc.property(fc.array(event, { maxLength: 30 }), (events) => {
      const { clock, lease, grant, releases } = createLease()
      let aborts = 0
      lease.signal.addEventListener('abort', () => aborts++)
      let final: string | undefined
      let confirmedAtMs = clock.monotonicMs()
      for (const each of events) {
        if (each.kind === 'pass') clock.block((each as { ms: number }).ms)
        if (each.kind === 'confirm') {
          if (lease.isLive) confirmedAtMs = clock.monotonicMs()
          lease.confirm(instantOf(clock), ttlMs)
        }
        if (each.kind === 'confirm-late') lease.confirm(grant.since, ttlMs)
        if (each.kind === 'jeopardize') lease.jeopardize()
        if (each.kind === 'lose') lease.lose('deleted', 'gone')
        if (each.kind === 'release') void lease.release()
        const { state } = lease
        if (final !== undefined) expect(state).toBe(final)
        if (state === 'lost' || state === 'released') final = state
        expect(aborts).toBe(state === 'lost' ? 1 : 0)
        const leftMs = Math.max(0, confirmedAtMs + ttlMs - driftMs - clock.monotonicMs())
        expect(lease.remainingMs).toBe(final === undefined ? leftMs : 0)
      }
      expect(releases()).toBeLessThanOrEqual(1)
    }),
    { numRuns: 500 },
  )
})

test('G4 a confirmation that arrives after the loss changes nothing', () => {
  const { clock, lease } = createLease()
  clock.block(ttlMs)
  expect(lease.state).toBe('lost')
  lease.confirm(instantOf(clock), ttlMs)
  expect(lease.state).toBe('lost')
  expect(lease.remainingMs).toBe(0)
})

test('a callback of the caller that throws does not keep the lease from its state', async () => {
  const { lease } = createLease()
  const failure = new Error('in the callback')
  // The test runner's own listeners would count it as a failure of this test.
  const listeners = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  const caught = new Promise((resolve) => process.once('uncaughtException', resolve))
  Object.assign(lease.terms, {
    onJeopardy: () => {
      throw failure
    },
  })
  lease.jeopardize()
  expect(lease.state).toBe('jeopardy')
  expect(await caught).toBe(failure)
  for (const listener of listeners) process.on('uncaughtException', listener)
})

test('T85 a confirmed renewal clears the failure before it: a later loss does not blame it', () => {
  const { clock, lease } = createLease()
  lease.jeopardize(new Error('the old failure'))
  lease.confirm(instantOf(clock), ttlMs)
  lease.lose('unreachable')
  expect(lease.ended?.cause).toBeUndefined()
  expect(lease.ended?.message).not.toContain('the old failure')
})
