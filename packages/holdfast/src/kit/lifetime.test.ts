import assert from 'node:assert/strict'
import { test } from 'vitest'
import { callWith } from '../base/aborting.ts'
import { isHoldfastError } from '../base/errors.ts'
import type { Call } from '../spi.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { Lifetime } from './lifetime.ts'

const isClosed = (error: unknown) => isHoldfastError(error, 'CLOSED')

test('no call begins when it was cancelled, or after the end', () => {
  const lifetime = new Lifetime('test', createFakeClock())
  lifetime.begin(callWith())
  assert.throws(() => lifetime.begin(callWith(AbortSignal.abort())), {
    code: 'BACKEND_UNAVAILABLE',
    outcome: 'not-applied',
  })
  const error = lifetime.end()
  assert(isClosed(error) && lifetime.isOver)
  assert.throws(() => lifetime.begin(callWith()), isClosed)
  assert.equal(lifetime.end(), error, 'a second end is harmless')
})

test('a call that waits is cut when it is cancelled and when the backend ends, unless it is over', () => {
  const lifetime = new Lifetime('test', createFakeClock())
  const controller = new AbortController()
  const cuts: unknown[] = []
  lifetime.onCut(callWith(controller.signal), (error) => cuts.push(error))
  lifetime.onCut(callWith(), () => cuts.push('untied'))()
  controller.abort()
  assert(isHoldfastError(cuts[0], 'BACKEND_UNAVAILABLE') && cuts[0].outcome === 'unknown')
  lifetime.onCut(callWith(), (error) => cuts.push(error))
  lifetime.end()
  assert(isClosed(cuts.at(-1)))
  assert(!cuts.includes('untied'))
})

test('what a call waits for settles it, unless it is cut first', async () => {
  const lifetime = new Lifetime('test', createFakeClock())
  assert.equal(await lifetime.untilCut(Promise.resolve('done'), callWith()), 'done')
  await assert.rejects(lifetime.untilCut(Promise.reject(new Error('broken')), callWith()), /broken/)
  const controller = new AbortController()
  const failing = Promise.withResolvers<void>()
  const cancelled = lifetime.untilCut(failing.promise, callWith(controller.signal))
  const ended = lifetime.untilCut(new Promise(() => {}), callWith())
  controller.abort()
  await assert.rejects(cancelled, { code: 'BACKEND_UNAVAILABLE', outcome: 'unknown' })
  // Failures of the work that come later are no unhandled rejections.
  failing.reject(new Error('too late'))
  lifetime.end()
  await assert.rejects(ended, isClosed)
})

test('work in the background has a limit, ends with the backend, and leaves no timer', async () => {
  const clock = createFakeClock()
  const lifetime = new Lifetime('test', clock)
  assert.equal(await lifetime.inBackground(async () => 'done'), 'done')
  assert.equal(clock.pendingTimers, 0)
  const untilCancelled = (call: Call) =>
    new Promise<never>((_, reject) => call.onCancel(() => reject(call.signal.reason)))
  const limited = lifetime.inBackground(untilCancelled, 100)
  const ended = lifetime.inBackground(untilCancelled)
  const told = Promise.all([
    assert.rejects(limited, /no answer within 100 ms/),
    assert.rejects(ended, isClosed),
  ])
  await clock.advance(100)
  lifetime.end()
  await told
  assert.equal(clock.pendingTimers, 0)
})
