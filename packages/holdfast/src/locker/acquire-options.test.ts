import assert from 'node:assert/strict'
import { describe, onTestFinished, test, vi } from 'vitest'
import { defaults } from '../base/defaults.ts'
import { type ErrorCode, isHoldfastError } from '../base/errors.ts'
import { onEvent } from '../base/events.ts'
import type { PermitOptions } from '../base/types.ts'
import { memory } from '../engines/memory/index.ts'
import { type BackendInfo, type Fencing, LOCK_CAPACITY } from '../spi.ts'
import { checkCapacity, checkTtlMs, checkWaitMs, wantedLock, wantedPermits } from './acquire-options.ts'

const plain: BackendInfo<Fencing> = memory().info
const locker = { ttlMs: 15_000, waitMs: 30_000 }

const infoWith = (changes: Partial<BackendInfo<Fencing>>) => ({ ...plain, ...changes })
const lock = (options: unknown, info = plain, withWait = true) =>
  wantedLock(info, 'n', options as object, locker, withWait)
const permits = (options: unknown, info = plain, withWait = true) =>
  wantedPermits(info, 'n', options as PermitOptions, locker, withWait)

function refused(body: () => unknown, rule: RegExp, code: ErrorCode = 'INVALID_ARGUMENT'): void {
  assert.throws(body, (error) => {
    assert.ok(isHoldfastError(error, code), `${code} expected: ${error}`)
    assert.match(error.message, rule)
    return true
  })
}

describe('what the engine is told', () => {
  test('without options: an exclusive lock with the defaults of the locker', () => {
    assert.deepEqual(lock({}), {
      ttlMs: 15_000,
      request: {
        name: 'n',
        mode: 'exclusive',
        weight: LOCK_CAPACITY,
        capacity: LOCK_CAPACITY,
        lockDelayMs: 0,
      },
      maxHoldMs: Number.POSITIVE_INFINITY,
      holdAtLeastMs: 0,
      warnHoldMs: defaults.warnHoldMs,
      onJeopardy: undefined,
      site: undefined,
    })
  })

  test('everything that is asked for arrives', () => {
    const onJeopardy = () => {}
    const { ttlMs, request, ...terms } = lock({
      ttlMs: 9_000,
      waitMs: 1,
      signal: new AbortController().signal,
      mode: 'shared',
      note: 'nightly',
      maxHoldMs: 100,
      holdAtLeastMs: 50,
      lockDelayMs: 70,
      warnHoldMs: Number.POSITIVE_INFINITY,
      onJeopardy,
    })
    assert.equal(ttlMs, 9_000)
    assert.deepEqual(request, {
      name: 'n',
      mode: 'shared',
      weight: 1,
      capacity: LOCK_CAPACITY,
      lockDelayMs: 70,
      note: 'nightly',
    })
    assert.deepEqual(terms, {
      maxHoldMs: 100,
      holdAtLeastMs: 50,
      warnHoldMs: Number.POSITIVE_INFINITY,
      onJeopardy,
      site: undefined,
    })
  })

  test('permits weigh 1 unless told otherwise', () => {
    const { request } = permits({ capacity: 5 })
    assert.deepEqual([request.mode, request.weight, request.capacity], ['permits', 1, 5])
    assert.equal(permits({ capacity: 5, weight: 5 }).request.weight, 5)
  })
})

describe('what is refused', () => {
  test('T55 names, options objects and option names', () => {
    refused(() => wantedLock(plain, '', {}, locker, true), /name must not be empty/)
    refused(() => wantedPermits(plain, 'a//b', { capacity: 1 }, locker, true), /empty segments/)
    for (const options of [null, 5_000, 'shared', []])
      refused(() => lock(options), /options must be an object/)
    refused(() => lock({ retryCount: 0 }), /no option "retryCount"/)
    refused(() => lock({ capacity: 3 }), /no option "capacity"/)
    refused(() => permits({ capacity: 3, mode: 'shared' }), /no option "mode"/)
  })

  test('T26 waitMs where nothing waits', () => {
    refused(() => lock({ waitMs: 5 }, plain, false), /no option "waitMs"/)
    refused(() => permits({ capacity: 1, waitMs: 5 }, plain, false), /no option "waitMs"/)
    lock({ waitMs: 5 })
    permits({ capacity: 1, waitMs: 5 })
  })

  test('a mode that is none, and permits as a mode', () => {
    for (const mode of ['EXCLUSIVE', 'read', 'permits', '', null, 1])
      refused(() => lock({ mode }), /mode must be one of exclusive, shared/)
  })

  test('G12 a mode that the engine cannot grant', () => {
    const exclusiveOnly = infoWith({ modes: ['exclusive'], name: 'some-engine' })
    lock({}, exclusiveOnly)
    const rule = /some-engine cannot grant (shared|permits) leases; it can: exclusive/
    refused(() => lock({ mode: 'shared' }, exclusiveOnly), rule, 'UNSUPPORTED')
    refused(() => permits({ capacity: 2 }, exclusiveOnly), rule, 'UNSUPPORTED')
  })

  test.each([
    ['lockDelayMs', 'lockDelay', 'session', 'holdAtLeastMs'],
    ['holdAtLeastMs', 'holdAtLeast', 'waiter', 'lockDelayMs'],
  ] as const)('G12 %s where it cannot be enforced', (option, declared, enforcer, other) => {
    const nobody = infoWith({ [declared]: 'none', name: 'some-engine' })
    refused(
      () => lock({ [option]: 1 }, nobody),
      new RegExp(`some-engine cannot enforce ${option}`),
      'UNSUPPORTED',
    )
    lock({ [option]: 0 }, nobody)
    lock({ [other]: 1 }, nobody)
    lock({ [option]: 1 }, infoWith({ [declared]: 'server' }))
    lock({ [option]: 1 }, infoWith({ [declared]: enforcer }))
  })

  test.each(['lockDelayMs', 'holdAtLeastMs'])('%s that is no time within a day', (option) => {
    for (const value of [-1, Number.NaN, Number.POSITIVE_INFINITY, 86_400_001, '5', null])
      refused(() => lock({ [option]: value }), new RegExp(`^${option} must be `))
    lock({ [option]: 86_400_000 })
  })

  test('holding for longer than holding is allowed', () => {
    refused(
      () => lock({ holdAtLeastMs: 101, maxHoldMs: 100 }),
      /holdAtLeastMs must not be more than maxHoldMs \(100\)/,
    )
    lock({ holdAtLeastMs: 100, maxHoldMs: 100 })
    lock({ holdAtLeastMs: 100, maxHoldMs: Number.POSITIVE_INFINITY })
  })

  test('nonsense for the other options', () => {
    for (const maxHoldMs of [0, -1, Number.NaN, null, '1'])
      refused(() => lock({ maxHoldMs }), /^maxHoldMs must be /)
    for (const warnHoldMs of [-1, Number.NaN, null, '1'])
      refused(() => lock({ warnHoldMs }), /^warnHoldMs must be /)
    refused(() => lock({ note: 5 }), /^note must be a string/)
    refused(() => lock({ note: 'n'.repeat(1_025) }), /^note must have at most 1024 bytes/)
    refused(() => lock({ signal: {} }), /^signal must be an AbortSignal/)
    refused(() => lock({ onJeopardy: 'log' }), /^onJeopardy must be a function/)
  })

  test('a capacity that is not a whole number of permits', () => {
    for (const capacity of [
      0,
      -1,
      1.5,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      '3',
      null,
      undefined,
      1_000_001,
    ])
      refused(() => permits({ capacity }), /^capacity must be /)
    refused(() => permits(undefined), /^capacity must be a number, not undefined/)
    assert.equal(checkCapacity(1_000_000), 1_000_000)
  })

  test('more permits than there are', () => {
    refused(() => permits({ capacity: 3, weight: 4 }), /weight must be at most 3, not 4/)
    for (const weight of [0, -1, 1.5, Number.NaN, null, '1'])
      refused(() => permits({ capacity: 3, weight }), /^weight must be /)
  })

  test('a wait that is no time', () => {
    assert.equal(checkWaitMs(0), 0)
    assert.equal(checkWaitMs(Number.POSITIVE_INFINITY), Number.POSITIVE_INFINITY)
    for (const waitMs of [-1, Number.NaN, null, undefined, '30s'])
      refused(() => checkWaitMs(waitMs), /^waitMs must be /)
  })
})

describe('TTLs', () => {
  const ranged = infoWith({ ttlMs: { min: 10_000, max: 60_000, step: 1_000 } })

  test('T4 they lie within what the engine can grant', () => {
    assert.equal(checkTtlMs(ranged, 10_000), 10_000)
    assert.equal(checkTtlMs(ranged, 60_000), 60_000)
    refused(() => checkTtlMs(ranged, 9_999), /ttlMs must be at least 10000, not 9999/)
    refused(() => checkTtlMs(ranged, 60_001), /ttlMs must be at most 60000/)
    refused(() => checkTtlMs(ranged, 10), /It is in milliseconds: 10 s would be 10000/)
    for (const ttlMs of [Number.NaN, Number.POSITIVE_INFINITY, '15s', null, undefined])
      refused(() => checkTtlMs(ranged, ttlMs), /^ttlMs must be /)
  })

  test('T4 they are rounded up to the step of the engine, never down', () => {
    assert.equal(checkTtlMs(ranged, 10_001), 11_000)
    assert.equal(checkTtlMs(ranged, 10_999.5), 11_000)
    assert.equal(checkTtlMs(plain, 20.5), 21)
    assert.equal(lock({ ttlMs: 12_345 }, ranged).ttlMs, 13_000)
  })

  test('drift stays below a third of the TTL', () => {
    const drifting = infoWith({ ttlMs: { min: 1, max: 60_000, step: 1 }, driftMs: () => 100 })
    refused(
      () => checkTtlMs(drifting, 300),
      /ttlMs of 300 is too short: drift \(100 ms\) must stay below a third/,
    )
    refused(() => checkTtlMs(drifting, 30), /too short/)
    assert.equal(checkTtlMs(drifting, 301), 301)
  })

  test('a lease that says nothing has the TTL of its locker', () => {
    assert.equal(wantedLock(plain, 'n', {}, { ttlMs: 777, waitMs: 1 }, true).ttlMs, 777)
    assert.equal(wantedLock(plain, 'n', { ttlMs: 888 }, { ttlMs: 777, waitMs: 1 }, true).ttlMs, 888)
  })

  test.each([
    ['a locker', 30],
    ['a locker', 999],
    ['a call', 30],
    ['a call', 999],
  ])('below a second there is one warning in a process: %s with %i', async (giver, short) => {
    const told: string[] = []
    onTestFinished(onEvent('warning', ({ code, warning }) => void told.push(`${code}: ${warning}`)))
    vi.resetModules()
    const { createLocker } = await import('./locker.ts')
    const give = async (ttlMs: number) => {
      const options = { ttlMs }
      await using client = createLocker(memory(), giver === 'a locker' ? options : {})
      await client.tryAcquire('n', giver === 'a locker' ? {} : options)
    }
    await give(1_000)
    await assert.rejects(give(10), { code: 'INVALID_ARGUMENT' })
    assert.deepEqual(told, [])
    await give(short)
    await give(500)
    assert.equal(told.length, 1)
    assert.match(
      told[0] ?? '',
      new RegExp(`^HOLDFAST_TTL: .*in milliseconds, and ${short} is shorter than a pause`),
    )
  })
})
