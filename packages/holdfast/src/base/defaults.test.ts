import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { tableRows } from '../../test/markdown-table.ts'
import { createRig, peek } from '../../test/rig.ts'
import * as index from '../index.ts'
import { defaultDriftMs, defaults, limits } from './defaults.ts'

describe('defaults', () => {
  test('they are what the design fixes', () => {
    assert.equal(defaults.ttlMs, 15_000)
    assert.equal(defaults.waitMs, 30_000)
    assert.equal(defaults.warnHoldMs, 60_000)
    assert.equal(defaults.pollMs, 200)
    assert.equal(defaults.pollJitterMs, 200)
    assert.equal(defaults.renewalsPerTtl, 3)
    assert.equal(defaults.renewalJitter, 0.1)
    assert.equal(defaults.driftShareOfTtl, 0.01)
    assert.equal(defaults.driftFloorMs, 2)
    assert.equal(defaults.maxSessions, 32)
    assert.equal(defaults.optimisticRetries, 3)
    assert.equal(defaults.optimisticJitterMs, 100)
  })

  test('limits are what the design fixes', () => {
    assert.equal(limits.dataBytes, 4_096)
    assert.equal(limits.maxEpoch, 2_047)
  })

  test('drift is 1 % of the TTL and 2 ms', () => {
    assert.equal(defaultDriftMs(15_000), 152)
    assert.equal(defaultDriftMs(0), 2)
  })

  test('the defaults fit each other', () => {
    assert.ok(defaultDriftMs(defaults.ttlMs) < defaults.ttlMs / 3)
    assert.ok(
      defaults.callTimeoutMs <= defaults.ttlMs / defaults.renewalsPerTtl,
      'a renewal may time out and repeat',
    )
    assert.ok(defaults.renewalJitter < 1)
  })

  test('users read the same ones', () => {
    assert.equal(index.defaults, defaults)
    assert.equal(index.limits, limits)
  })
})

describe('defaults that can be seen at work', () => {
  test('ttlMs: a lease believes for 15 s less drift', async () => {
    const lease = await createRig().locker().acquire('n')
    assert.equal(lease.remainingMs, 15_000 - 152)
  })

  test('waitMs: an acquire gives up after 30 s', async () => {
    const rig = createRig()
    const locker = rig.locker()
    await using _ = await locker.acquire('n')
    const seen = peek(locker.acquire('n'))
    await rig.clock.advance(29_999)
    assert.equal(seen.status, 'pending')
    await rig.clock.advance(1)
    assert.ok(index.isHoldfastError(seen.reason, 'ACQUIRE_TIMEOUT'))
    assert.equal(seen.reason.waitedMs, 30_000)
  })

  test('renewal: every third of the TTL, give or take 10 %', async () => {
    const rig = createRig()
    await using _ = await rig.locker().acquire('n')
    const times: number[] = [rig.clock.monotonicMs()]
    const stop = index.onEvent('renewed', () => times.push(rig.clock.monotonicMs()))
    await rig.clock.advance(600_000)
    stop()
    const intervals = times.slice(1).map((time, at) => time - (times[at] ?? 0))
    for (const interval of intervals) assert.ok(interval >= 4_500 && interval <= 5_500, String(interval))
    assert.ok(new Set(intervals.map(Math.round)).size > 20, 'they are jittered')
  })
})

describe('docs/reference/defaults.md', () => {
  test.each([
    ['Defaults', defaults],
    ['Limits', limits],
  ])('%s: every entry is there with its value, and nothing else', (heading, values) => {
    const documented = tableRows('defaults.md', heading).map(({ name, value }) => [name, value])
    const actual = Object.entries(values).map(([name, value]) => [name, String(value)])
    assert.deepEqual(documented, actual)
  })

  test('every entry says what it means, and units agree with names', () => {
    for (const { name = '', unit, meaning } of tableRows('defaults.md')) {
      assert.ok(meaning && meaning.length > 10, name)
      if (name.endsWith('Ms')) assert.equal(unit, 'ms', name)
      if (name.endsWith('Bytes')) assert.match(unit ?? '', /^bytes/, name)
    }
  })
})
