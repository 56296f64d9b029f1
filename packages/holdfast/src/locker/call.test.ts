import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, test } from 'vitest'
import { peek, raisedDuring } from '../../test/rig.ts'
import { Cancellation } from '../base/cancellation.ts'
import { CapacityMismatchError, isHoldfastError } from '../base/errors.ts'
import type { Call } from '../spi.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { type CallLimits, callEngine } from './call.ts'

function setUp(limits: Partial<CallLimits> = {}) {
  const clock = createFakeClock()
  const engine = { clock, backendName: 'some-engine' }
  const answer = Promise.withResolvers<string>()
  const calls: Call[] = []
  const start = (run: (call: Call) => Promise<string> = () => answer.promise) =>
    callEngine(engine, { what: 'acquire of "n"', timeoutMs: 5_000, ...limits }, (call) => {
      calls.push(call)
      return run(call)
    })
  return { clock, answer, calls, start, engine }
}

const unhandled: unknown[] = []
const onUnhandled = (reason: unknown) => void unhandled.push(reason)
beforeEach(() => void process.on('unhandledRejection', onUnhandled))
afterEach(() => {
  process.off('unhandledRejection', onUnhandled)
  assert.deepEqual(unhandled.splice(0), [], 'no unhandled rejections')
})

describe('a call that is answered', () => {
  test('gives the answer and leaves no timer', async () => {
    const { clock, answer, calls, start } = setUp()
    const called = start()
    assert.equal(clock.pendingTimers, 1)
    answer.resolve('yes')
    assert.equal(await called, 'yes')
    assert.equal(clock.pendingTimers, 0)
    assert.equal(calls[0]?.signal.aborted, false)
  })

  test('is made once, and at once', () => {
    const { calls, start } = setUp()
    void start()
    assert.equal(calls.length, 1)
  })
})

describe('T16 a call that is never answered', () => {
  test('is answered at its limit, as unknown', async () => {
    const { clock, calls, start } = setUp()
    const seen = peek(start())
    await clock.advance(4_999)
    assert.equal(seen.status, 'pending')
    await clock.advance(1)
    assert.ok(isHoldfastError(seen.reason, 'BACKEND_UNAVAILABLE'))
    assert.equal(seen.reason.outcome, 'unknown')
    assert.equal(seen.reason.backend, 'some-engine')
    assert.match(seen.reason.message, /some-engine: acquire of "n": no answer within 5000 ms/)
    assert.equal(calls[0]?.signal.aborted, true, 'the backend is told that no caller waits')
    assert.equal(calls[0]?.signal.reason, seen.reason)
  })

  test('without a limit, waits for as long as it takes', async () => {
    const { clock, answer, start } = setUp({ timeoutMs: Number.POSITIVE_INFINITY })
    const seen = peek(start())
    assert.equal(clock.pendingTimers, 0)
    await clock.advance(1e12)
    assert.equal(seen.status, 'pending')
    answer.resolve('at last')
    await clock.settle()
    assert.equal(seen.value, 'at last')
  })

  test('keeps the process alive only when a caller waits', () => {
    const asked: unknown[] = []
    const { engine } = setUp()
    const clock = {
      ...engine.clock,
      setTimer: (_ms: number, _fire: () => void, options?: object) => {
        asked.push(options)
        return { cancel: () => {} }
      },
    }
    const never = () => new Promise<void>(() => {})
    void callEngine({ ...engine, clock }, { what: 'w', timeoutMs: 1 }, never)
    void callEngine({ ...engine, clock }, { what: 'w', timeoutMs: 1, keepsProcessAlive: true }, never)
    assert.deepEqual(asked, [{ keepsProcessAlive: false }, { keepsProcessAlive: true }])
  })
})

describe('stop', () => {
  test('raised before: the call is not made at all', async () => {
    const stop = new Cancellation()
    stop.cancel('enough')
    const { clock, calls, start } = setUp({ stop })
    await assert.rejects(start(), (error) => error === 'enough')
    assert.equal(calls.length, 0)
    assert.equal(clock.pendingTimers, 0)
  })

  test("raised during: the caller is answered at once, with the stop's own reason", async () => {
    const stop = new Cancellation()
    const { clock, answer, calls, start } = setUp({ stop })
    const called = start()
    const reason = { mine: true }
    stop.cancel(reason)
    await assert.rejects(called, (error) => error === reason)
    assert.equal(calls[0]?.signal.reason, reason)
    assert.equal(clock.pendingTimers, 0)
    answer.resolve('too late')
    await clock.advance(10_000)
  })

  test('raised after: nothing happens, and the backend is not told anything', async () => {
    const stop = new Cancellation()
    const { clock, answer, calls, start } = setUp({ stop })
    const called = start()
    answer.resolve('yes')
    assert.equal(await called, 'yes')
    stop.cancel('too late')
    await clock.advance(10_000)
    assert.equal(calls[0]?.signal.aborted, false)
  })

  test('is let go of when the call has ended: many calls share one that lives long', async () => {
    const stop = new Cancellation()
    let ties = 0
    const { onCancel } = stop
    stop.onCancel = (callback) => {
      const untie = onCancel.call(stop, callback)
      ties++
      return () => {
        ties--
        untie()
      }
    }
    const { start } = setUp({ stop })
    await start(async () => 'yes')
    await assert.rejects(start(() => Promise.reject(new Error('no'))))
    const timedOut = setUp({ stop })
    const seen = peek(timedOut.start())
    await timedOut.clock.advance(5_000)
    assert.equal(seen.status, 'rejected')
    assert.equal(ties, 0)
  })

  test('raised by the call itself wins over what the call returns', async () => {
    const stop = new Cancellation()
    const { start } = setUp({ stop })
    const called = start(async () => {
      stop.cancel('from within')
      return 'yes'
    })
    await assert.rejects(called, (error) => error === 'from within')
  })
})

describe('a backend that throws when it is told that its call is cancelled', () => {
  const tellBadly = (call: Call) => {
    assert.ok(call instanceof Cancellation)
    call.onCancel(() => {
      throw new Error('planted')
    })
    return new Promise<string>(() => {})
  }

  test('does not keep the caller waiting, at the limit', async () => {
    const { clock, start } = setUp()
    const seen = peek(start(tellBadly))
    const raised = await raisedDuring(() => clock.advance(5_000))
    assert.ok(isHoldfastError(seen.reason, 'BACKEND_UNAVAILABLE'))
    assert.deepEqual(raised, ['planted'])
  })

  test('nor the calls that share its stop', async () => {
    const stop = new Cancellation()
    const { clock, start } = setUp({ stop })
    const seen = [peek(start(tellBadly)), peek(start()), peek(start(tellBadly)), peek(start())]
    const raised = await raisedDuring(async () => {
      stop.cancel('enough')
      await clock.settle()
    })
    assert.deepEqual(
      seen.map(({ reason }) => reason),
      ['enough', 'enough', 'enough', 'enough'],
    )
    assert.deepEqual(raised, ['planted', 'planted'])
  })
})

describe('a call that fails', () => {
  test("with one of our errors: the error is the backend's own", async () => {
    const { answer, start } = setUp()
    const mismatch = new CapacityMismatchError('n', 1, 2)
    answer.reject(mismatch)
    await assert.rejects(start(), (error) => error === mismatch)
  })

  test.each<[string, unknown, RegExp]>([
    ['a raw error', new Error('ECONNRESET'), /acquire of "n": ECONNRESET/],
    ['a text', 'went away', /acquire of "n": went away/],
    ['nothing', undefined, /acquire of "n": undefined/],
  ])('with %s: it is wrapped, counts as unknown and keeps its cause', async (_, cause, message) => {
    const { clock, answer, start } = setUp()
    answer.reject(cause)
    await assert.rejects(start(), (error) => {
      assert.ok(isHoldfastError(error, 'BACKEND_UNAVAILABLE'))
      assert.equal(error.outcome, 'unknown')
      assert.equal(error.cause, cause)
      assert.match(error.message, message)
      return true
    })
    assert.equal(clock.pendingTimers, 0)
  })

  test('by throwing at once: it is treated alike', async () => {
    const { clock, start } = setUp()
    const cause = new TypeError('client is not connected')
    const called = start(() => {
      throw cause
    })
    await assert.rejects(
      called,
      (error) => isHoldfastError(error, 'BACKEND_UNAVAILABLE') && error.cause === cause,
    )
    assert.equal(clock.pendingTimers, 0)
  })

  test('T30 after its limit or its stop: no caller hears of it, and it is no unhandled rejection', async () => {
    const stop = new Cancellation()
    const timedOut = setUp()
    const stopped = setUp({ stop })
    const seen = [peek(timedOut.start()), peek(stopped.start())]
    await timedOut.clock.advance(5_000)
    stop.cancel('enough')
    timedOut.answer.reject(new Error('late'))
    stopped.answer.reject(new Error('late'))
    await stopped.clock.settle()
    assert.equal(seen[1]?.reason, 'enough')
    assert.ok(isHoldfastError(seen[0]?.reason, 'BACKEND_UNAVAILABLE'))
  })
})
