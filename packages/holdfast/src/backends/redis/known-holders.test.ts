/** What a watcher on a Cluster does when the time of a holder is up. */
import assert from 'node:assert/strict'
import { onTestFinished, test } from 'vitest'
import type { ToldEvent } from '../../kit/watching.ts'
import { type HolderState, LOCK_CAPACITY, type NameState } from '../../spi.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { KnownHolders } from './known-holders.ts'

const TTL_MS = 1_000
const LONG_MS = 60_000
const acquired: ToldEvent = { kind: 'acquired', name: 'x', id: 'one', holder: 'ada', token: null }
const free: NameState = {
  name: 'x',
  capacity: LOCK_CAPACITY,
  holders: [],
  waiters: [],
  closedForMs: 0,
  atMs: 0,
}

function heldFor(expiresInMs: number): NameState {
  const holder: HolderState = {
    id: 'one',
    holder: 'ada',
    session: 'session',
    mode: 'exclusive',
    weight: LOCK_CAPACITY,
    ttlMs: TTL_MS,
    token: null,
    heldForMs: 1,
    expiresInMs,
  }
  return { ...free, holders: [holder] }
}

/** One holder that was granted now. */
function granted(inspect: () => NameState | null) {
  const clock = createFakeClock()
  const told: string[] = []
  let looks = 0
  const holders = new KnownHolders({
    clock,
    tell: ({ kind }) => told.push(kind),
    inspect: async () => {
      looks++
      return inspect()
    },
  })
  onTestFinished(() => holders.close())
  holders.granted(acquired, TTL_MS, true)
  return { clock, told, holders, looks: () => looks }
}

test('a holder that is missing is not told as expired while its release may be in flight', async () => {
  const { clock, told, holders, looks } = granted(() => null)
  await clock.advance(TTL_MS + 1)
  assert.equal(looks(), 1)
  assert.deepEqual(told, [])
  holders.changed({ ...acquired, kind: 'released' })
  await clock.advance(LONG_MS)
  assert.deepEqual(told, [], 'the release is what happened')
})

test('a holder that is still missing at the second look is told as expired, once', async () => {
  const { clock, told, looks } = granted(() => free)
  await clock.advance(LONG_MS)
  assert.deepEqual(told, ['expired'])
  assert.equal(looks(), 2)
})

test.each([
  ['a renewed holder', heldFor(TTL_MS), TTL_MS + 1],
  ['a missing holder', null, 500],
])('%s is looked at again so long after the answer, however long that took', async (_, state, laterMs) => {
  const { clock, told, looks } = granted(() => {
    clock.block(LONG_MS)
    return state
  })
  await clock.advance(TTL_MS + 1)
  assert.equal(looks(), 1)
  await clock.advance(laterMs - 1)
  assert.equal(looks(), 1)
  assert.deepEqual(told, [])
  await clock.advance(1)
  assert.equal(looks(), 2)
})
