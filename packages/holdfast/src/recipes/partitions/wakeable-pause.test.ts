import { expect, test } from 'vitest'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { WakeablePause } from './wakeable-pause.ts'

function paused() {
  const clock = createFakeClock()
  const pause = new WakeablePause(clock)
  const take = () => {
    const taken = { isOver: false }
    void pause.take(50, 300).then(() => {
      taken.isOver = true
    })
    return taken
  }
  return { clock, pause, take }
}

test('a wake before it and one in its first part end it after the first part, once', async () => {
  const { clock, pause, take } = paused()
  for (const wakesBefore of [true, false]) {
    if (wakesBefore) pause.wake()
    const taken = take()
    if (!wakesBefore) pause.wake()
    await clock.advance(49)
    expect(taken.isOver).toBe(false)
    await clock.advance(1)
    expect(taken.isOver).toBe(true)
  }
  const next = take()
  await clock.advance(299)
  expect(next.isOver).toBe(false)
  await clock.advance(1)
  expect(next.isOver).toBe(true)
  expect(clock.pendingTimers).toBe(0)
})

test('a wake after the first part ends it at once', async () => {
  const { clock, pause, take } = paused()
  const taken = take()
  await clock.advance(60)
  pause.wake()
  await clock.advance(0)
  expect(taken.isOver).toBe(true)
  expect(clock.pendingTimers).toBe(0)
})
