import assert from 'node:assert/strict'
import { test } from 'vitest'
import { createFakeClock } from '../testing/fake-clock.ts'
import { Cancellation, unlessCancelled } from './cancellation.ts'
import { settledWithin, withLimit } from './within.ts'

test('work that is done in time answers, and leaves no timer', async () => {
  const clock = createFakeClock()
  assert.equal(await withLimit(clock, 100, async () => 7), 7)
  await assert.rejects(
    withLimit(clock, 100, () => Promise.reject(new Error('its own'))),
    /its own/,
  )
  assert.equal(await settledWithin(clock, 100, Promise.resolve(7)), 7)
  assert.equal(clock.pendingTimers, 0)
})

test('the limit is cancelled when the time is over, and not before', async () => {
  const clock = createFakeClock()
  const told: string[] = []
  const done = withLimit(clock, 100, async (limit) => {
    await new Promise<void>((resolve) => limit.onCancel(resolve))
    told.push((limit.reason as Error).message)
  })
  await clock.advance(99)
  assert.deepEqual(told, [])
  await clock.advance(1)
  await done
  assert.deepEqual(told, ['no answer within 100 ms'])
})

test('the limit is tied to other reasons to stop, and untied when the work is done', async () => {
  const clock = createFakeClock()
  const closing = new Cancellation()
  const tie = (limit: Cancellation) => {
    const untie = closing.onCancel(() => limit.cancel(closing.reason))
    return () => {
      untied++
      untie()
    }
  }
  let untied = 0
  const done = withLimit(clock, 100, (limit) => unlessCancelled(new Promise(() => {}), limit), { tie })
  closing.cancel(new Error('closed'))
  await assert.rejects(done, /closed/)
  assert.equal(untied, 1)
  assert.equal(clock.pendingTimers, 0)
})

test('a promise that does not settle in time is left to itself, with the reason that was given', async () => {
  const clock = createFakeClock()
  const late = settledWithin(clock, 100, new Promise(() => {}), { reason: () => new Error('too late') })
  const rejected = assert.rejects(late, /too late/)
  await clock.advance(100)
  await rejected
  assert.equal(clock.pendingTimers, 0)
})

test('an answer that arrived while the process was blocked is read before its time is judged', async () => {
  const fires: (() => void)[] = []
  const setTimer = (_delayMs: number, fire: () => void) => {
    fires.push(fire)
    return { cancel() {} }
  }
  const { promise, resolve } = Promise.withResolvers<number>()
  const asked = settledWithin({ ...createFakeClock(), setTimer }, 100, promise)
  for (const fire of fires) fire()
  resolve(7)
  assert.equal(await asked, 7)
})
