import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { elapsedMs, instantOf, sleep } from '../base/clock.ts'
import { createFakeClock, type FakeClock } from './fake-clock.ts'

function recorder(clock: FakeClock) {
  const startMs = clock.monotonicMs()
  const fired: string[] = []
  const at = (delayMs: number, label: string, then = () => {}) =>
    clock.setTimer(delayMs, () => {
      fired.push(`${label}@${clock.monotonicMs() - startMs}`)
      then()
    })
  return { fired, at }
}

describe('the fake clock', () => {
  test('both clocks arrive, however small the steps between are', async () => {
    const clock = createFakeClock()
    const endMs = clock.wallMs() + 1
    const step = () => {
      if (clock.wallMs() < endMs) clock.setTimer(0.000_1, step)
    }
    step()
    await clock.advance(1.1)
    assert(clock.wallMs() >= endMs)
  })

  test('stands still until it is told to move', async () => {
    const clock = createFakeClock({ monotonicMs: 5, wallMs: 7 })
    const { fired, at } = recorder(clock)
    at(0, 'now')
    await clock.settle()
    assert.deepEqual([clock.monotonicMs(), clock.wallMs(), fired.length], [5, 7, 0])
    await clock.advance(0)
    assert.deepEqual(fired, ['now@0'])
    await clock.advance(10)
    assert.deepEqual([clock.monotonicMs(), clock.wallMs()], [15, 17])
  })

  test('fires timers in the order of their times, equal ones in the order of their making', async () => {
    const clock = createFakeClock()
    const { fired, at } = recorder(clock)
    at(30, 'c')
    at(10, 'a')
    at(30, 'd')
    at(20, 'b')
    await clock.advance(30)
    assert.deepEqual(fired, ['a@10', 'b@20', 'c@30', 'd@30'])
    assert.equal(clock.pendingTimers, 0)
  })

  test('fires a timer that was set by another one within the same advance, at its own time', async () => {
    const clock = createFakeClock()
    const { fired, at } = recorder(clock)
    at(10, 'first', () => at(5, 'second', () => at(100, 'much later')))
    at(15, 'older')
    await clock.advance(50)
    assert.deepEqual(fired, ['first@10', 'older@15', 'second@15'])
    assert.equal(clock.pendingTimers, 1)
  })

  test('a cancelled timer does not fire, also when it is cancelled by one that fires before it', async () => {
    const clock = createFakeClock()
    const { fired, at } = recorder(clock)
    const doomed = at(20, 'doomed')
    at(10, 'killer', () => doomed.cancel())
    at(20, 'bystander')
    await clock.advance(100)
    assert.deepEqual(fired, ['killer@10', 'bystander@20'])
  })

  test('lets promises settle between two timers', async () => {
    const clock = createFakeClock()
    const { fired, at } = recorder(clock)
    const worker = (async () => {
      await sleep(clock, 10)
      at(5, 'set after the sleep')
    })()
    at(20, 'last')
    await clock.advance(20)
    await worker
    assert.deepEqual(fired, ['set after the sleep@15', 'last@20'])
  })

  test('T8 block moves the time and fires nothing: what is due fires late, at the next advance', async () => {
    const clock = createFakeClock()
    const { fired, at } = recorder(clock)
    at(10, 'b')
    at(5, 'a')
    at(60, 'c')
    const since = instantOf(clock)
    clock.block(50)
    await clock.settle()
    assert.deepEqual(fired, [])
    assert.equal(elapsedMs(clock, since), 50)
    await clock.advance(0)
    assert.deepEqual(fired, ['a@50', 'b@50'])
    await clock.advance(10)
    assert.deepEqual(fired, ['a@50', 'b@50', 'c@60'])
  })

  test('T3 suspend stops the monotonic clock and not the wall clock, and timers do not count it', async () => {
    const clock = createFakeClock()
    const { fired, at } = recorder(clock)
    at(10, 'a')
    const since = instantOf(clock)
    clock.suspend(3_600_000)
    assert.equal(clock.monotonicMs() - since.monotonicMs, 0)
    assert.equal(elapsedMs(clock, since), 3_600_000)
    await clock.advance(9)
    assert.deepEqual(fired, [])
    await clock.advance(1)
    assert.deepEqual(fired, ['a@10'])
  })

  test('T3 stepWall moves the wall clock alone, in both directions', async () => {
    const clock = createFakeClock()
    const { fired, at } = recorder(clock)
    at(10, 'a')
    const since = instantOf(clock)
    clock.stepWall(-3_600_000)
    assert.equal(elapsedMs(clock, since), 0)
    await clock.advance(10)
    assert.deepEqual(fired, ['a@10'])
    assert.equal(elapsedMs(clock, since), 10)
    clock.stepWall(7_200_000)
    assert.equal(elapsedMs(clock, since), 3_600_010)
  })
})
