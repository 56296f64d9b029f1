import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import fc from 'fast-check'
import { afterEach, describe, onTestFinished, test, vi } from 'vitest'
import { createFakeClock } from '../testing/fake-clock.ts'
import {
  afterThisTurn,
  type Clock,
  elapsedMs,
  fresherOf,
  instantOf,
  judgeLate,
  laterOf,
  sleep,
  systemClock,
} from './clock.ts'

describe('elapsed time', () => {
  test('G3 T3 it is the larger of what the two clocks say', () => {
    const clock = createFakeClock()
    const since = instantOf(clock)
    clock.block(100)
    assert.equal(elapsedMs(clock, since), 100)
    clock.suspend(5_000)
    assert.equal(elapsedMs(clock, since), 5_100, 'a suspended machine: the wall clock knows')
    clock.stepWall(-3_600_000)
    assert.equal(elapsedMs(clock, since), 100, 'a wall clock set back: the monotonic clock knows')
    clock.stepWall(7_200_000)
    assert.ok(
      elapsedMs(clock, since) > 3_600_000,
      'a wall clock set forward ends leases early, which is safe',
    )
  })

  test('G3 no step of the wall clock makes it less than the monotonic clock says', () => {
    fc.assert(
      fc.property(fc.nat(1e9), fc.integer({ min: -1e12, max: 1e12 }), (ranMs, stepMs) => {
        const clock = createFakeClock()
        const since = instantOf(clock)
        clock.block(ranMs)
        clock.stepWall(stepMs)
        assert.equal(elapsedMs(clock, since), Math.max(ranMs, ranMs + stepMs))
      }),
    )
  })

  test('T3 which of two instants is later is decided by the monotonic clock', () => {
    const clock = createFakeClock()
    const first = instantOf(clock)
    clock.block(10)
    clock.stepWall(-3_600_000)
    const second = instantOf(clock)
    assert.equal(laterOf(first, second), second)
    assert.equal(laterOf(second, first), second)
  })

  test('T3 of two confirmations the one counts that leaves more time, also after steps of the wall clock', () => {
    const clock = createFakeClock()
    const first = instantOf(clock)
    clock.block(10)
    const second = instantOf(clock)
    assert.equal(fresherOf(instantOf(clock), first, second), second)
    assert.equal(fresherOf(instantOf(clock), second, first), second)
    clock.stepWall(-3_600_000)
    const inBetween = instantOf(clock)
    clock.stepWall(3_600_000)
    assert.equal(fresherOf(instantOf(clock), second, inBetween), second)
    assert.equal(fresherOf(instantOf(clock), inBetween, second), second)
  })

  test('T3 of two instants between which the machine slept, the one after it is later', () => {
    const clock = createFakeClock()
    const before = instantOf(clock)
    clock.suspend(1_000)
    const after = instantOf(clock)
    assert.equal(laterOf(before, after), after)
    assert.equal(laterOf(after, before), after)
  })
})

describe('the system clock', () => {
  afterEach(() => void vi.useRealTimers())

  const fakeTimers = () => vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })

  test('its monotonic clock is the one that all processes of the machine share', () => {
    const before = Number(process.hrtime.bigint()) / 1e6
    const reading = systemClock.monotonicMs()
    const after = Number(process.hrtime.bigint()) / 1e6
    // A millionth of a millisecond is what the conversion of so large a number may lose.
    assert.ok(reading >= before - 1e-5 && reading <= after + 1e-5, `${before} <= ${reading} <= ${after}`)
  })

  test('it never goes back', () => {
    let last = systemClock.monotonicMs()
    for (let reads = 0; reads < 10_000; reads++) {
      const now = systemClock.monotonicMs()
      assert.ok(now >= last)
      last = now
    }
  })

  test('its wall clock follows the settable clock', () => {
    vi.useFakeTimers({ toFake: ['Date'], now: 1_234 })
    assert.equal(systemClock.wallMs(), 1_234)
    vi.setSystemTime(99)
    assert.equal(systemClock.wallMs(), 99)
  })

  test.each([2 ** 31, 2 ** 32 + 5, 30 * 86_400_000])('a timer of %d ms does not fire at once', (delayMs) => {
    fakeTimers()
    let fired = 0
    systemClock.setTimer(delayMs, () => fired++)
    vi.advanceTimersByTime(delayMs - 1)
    assert.equal(fired, 0)
    vi.advanceTimersByTime(1)
    assert.equal(fired, 1)
    assert.equal(vi.getTimerCount(), 0)
  })

  test('a timer of infinite length never fires, and can be cancelled', () => {
    fakeTimers()
    const timer = systemClock.setTimer(Number.POSITIVE_INFINITY, () => assert.fail('fired'))
    vi.advanceTimersByTime(10 * 2 ** 31)
    assert.equal(vi.getTimerCount(), 1)
    timer.cancel()
    assert.equal(vi.getTimerCount(), 0)
  })

  test('a cancelled timer does not fire, also in a later piece of a long one', () => {
    fakeTimers()
    const short = systemClock.setTimer(10, () => assert.fail('fired'))
    const long = systemClock.setTimer(3 * 2 ** 31, () => assert.fail('fired'))
    short.cancel()
    vi.advanceTimersByTime(2 ** 31 + 1)
    long.cancel()
    long.cancel()
    vi.advanceTimersByTime(4 * 2 ** 31)
    assert.equal(vi.getTimerCount(), 0)
  })

  test('a timer of no length, or of less, fires in a later turn of the event loop', async () => {
    const fired: number[] = []
    systemClock.setTimer(0, () => fired.push(0), { keepsProcessAlive: true })
    systemClock.setTimer(-5, () => fired.push(-5), { keepsProcessAlive: true })
    await Promise.resolve()
    assert.deepEqual(fired, [])
    await vi.waitFor(() => assert.equal(fired.length, 2), 120_000)
  })

  test('only timers that are asked to keep the process alive do', () => {
    const { handles } = recordTimeouts(() => {
      systemClock.setTimer(900, () => {})
      systemClock.setTimer(900, () => {}, { keepsProcessAlive: false })
      systemClock.setTimer(900, () => {}, { keepsProcessAlive: true })
      systemClock.setTimer(Number.POSITIVE_INFINITY, () => {}, { keepsProcessAlive: true })
    })
    assert.deepEqual(
      handles.map((handle) => handle.hasRef()),
      [false, false, true, true],
    )
  })

  test('timers of one length share one of the system, which keeps the process alive as long as one of them must', () => {
    const { handles } = recordTimeouts((handles) => {
      const idle = systemClock.setTimer(61_001, () => {})
      const keeping = systemClock.setTimer(61_001, () => {}, { keepsProcessAlive: true })
      const another = systemClock.setTimer(61_001, () => {}, { keepsProcessAlive: true })
      const [shared] = handles
      assert.equal(shared?.hasRef(), true)
      keeping.cancel()
      keeping.cancel()
      assert.equal(shared?.hasRef(), true)
      another.cancel()
      assert.equal(shared?.hasRef(), false)
      idle.cancel()
    })
    assert.equal(handles.length, 1)
  })

  test('timers that share one come in order, without those that were cancelled, also after one that throws', async () => {
    const fired: string[] = []
    const thrown: unknown[] = []
    const others = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    process.on('uncaughtException', (error) => thrown.push(error))
    const timers = ['a', 'b', 'c', 'd'].map((name) =>
      systemClock.setTimer(1_003, () => {
        fired.push(name)
        if (name === 'a') throw new Error('planted')
        if (name === 'b') timers[2]?.cancel()
      }),
    )
    await new Promise((resolve) => setTimeout(resolve, 300))
    systemClock.setTimer(1_003, () => fired.push('later'))
    await vi.waitFor(() => assert.deepEqual(fired, ['a', 'b', 'd', 'later']), 120_000)
    process.removeAllListeners('uncaughtException')
    for (const listener of others) process.on('uncaughtException', listener)
    assert.deepEqual(
      thrown.map((error) => (error as Error).message),
      ['planted'],
    )
  })

  test('a timer comes although another of its length was made while the system’s timers were replaced', async () => {
    const spy = vi.spyOn(globalThis, 'setTimeout').mockImplementation((() => ({
      ref() {},
      unref() {},
    })) as never)
    systemClock.setTimer(1_007, () => {}).cancel()
    spy.mockRestore()
    await new Promise<void>((resolve) => systemClock.setTimer(1_007, resolve, { keepsProcessAlive: true }))
  })

  test('a delay that is over already does not make Node print a warning', () => {
    const { delays } = recordTimeouts(() => systemClock.setTimer(-5, () => {}))
    assert.deepEqual(delays, [0])
  })
})

/** Records the timers that are asked of the system meanwhile; they are cleared afterwards. */
function recordTimeouts(body: (handles: readonly NodeJS.Timeout[]) => void) {
  const real = globalThis.setTimeout
  const handles: NodeJS.Timeout[] = []
  const delays: number[] = []
  const spy = vi.spyOn(globalThis, 'setTimeout').mockImplementation(((fire: () => void, ms: number) => {
    delays.push(ms)
    const handle = real(fire, Math.max(0, ms))
    handles.push(handle)
    return handle
  }) as typeof setTimeout)
  body(handles)
  spy.mockRestore()
  onTestFinished(() => handles.forEach(clearTimeout))
  return { handles, delays }
}

describe('lateness', () => {
  test('an answer that is read in the turn in which the timer fires is not late', async () => {
    let fire = () => {}
    const setTimer: Clock['setTimer'] = (_, callback) => {
      fire = callback
      return { cancel() {} }
    }
    const late: number[] = []
    const limit = judgeLate({ ...systemClock, setTimer }, 100, (firedMs) => late.push(firedMs))
    fire()
    limit.cancel()
    await new Promise<void>(afterThisTurn)
    assert.deepEqual(late, [])
  })

  test('without an answer it is judged once, with the time at which the timer fired', async () => {
    const clock = createFakeClock()
    const startMs = clock.monotonicMs()
    const late: number[] = []
    judgeLate(clock, 100, (firedMs) => late.push(firedMs - startMs))
    await clock.advance(99)
    assert.deepEqual(late, [])
    await clock.advance(500)
    assert.deepEqual(late, [100])
    assert.equal(clock.pendingTimers, 0)
  })
})

describe('sleep', () => {
  test('it resolves when its time has come and not before, and leaves nothing behind', async () => {
    const clock = createFakeClock()
    const { signal } = new AbortController()
    let awake = false
    const slept = sleep(clock, 100, { signal }).then(() => (awake = true))
    await clock.advance(99)
    assert.equal(awake, false)
    await clock.advance(1)
    assert.equal(awake, true)
    await slept
    assert.equal(getEventListeners(signal, 'abort').length, 0)
  })

  test("T27 an abort ends it at once, with the caller's own reason", async () => {
    const clock = createFakeClock()
    const controller = new AbortController()
    const reason = { mine: true }
    const slept = sleep(clock, 3_000, { signal: controller.signal })
    controller.abort(reason)
    await assert.rejects(slept, (error) => error === reason)
    assert.equal(clock.pendingTimers, 0, 'the timer is gone')
  })

  test('T27 an abort that came before it means no sleep at all', async () => {
    const clock = createFakeClock()
    await assert.rejects(
      sleep(clock, 3_000, { signal: AbortSignal.abort('gone') }),
      (error) => error === 'gone',
    )
    assert.equal(clock.pendingTimers, 0)
  })

  test('an abort that comes after it changes nothing', async () => {
    const clock = createFakeClock()
    const controller = new AbortController()
    const slept = sleep(clock, 1, { signal: controller.signal })
    await clock.advance(1)
    controller.abort()
    await slept
  })

  test('it passes on whether it keeps the process alive', async () => {
    const asked: unknown[] = []
    const clock = createFakeClock()
    const recording = {
      ...clock,
      setTimer: (ms: number, fire: () => void, options?: object) => {
        asked.push(options)
        return clock.setTimer(ms, fire)
      },
    }
    void sleep(recording, 1)
    void sleep(recording, 1, { keepsProcessAlive: true })
    assert.deepEqual(asked, [{ keepsProcessAlive: false }, { keepsProcessAlive: true }])
  })
})
