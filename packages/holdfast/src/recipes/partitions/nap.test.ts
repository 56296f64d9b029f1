import { expect, test } from 'vitest'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { Nap } from './nap.ts'

function napping() {
  const clock = createFakeClock()
  const nap = new Nap(clock)
  const take = () => {
    const taken = { isOver: false }
    void nap.take(50, 300).then(() => {
      taken.isOver = true
    })
    return taken
  }
  return { clock, nap, take }
}

test('a wake before it and one in its first part end it after the first part, once', async () => {
  const { clock, nap, take } = napping()
  for (const wakesBefore of [true, false]) {
    if (wakesBefore) nap.wake()
    const taken = take()
    if (!wakesBefore) nap.wake()
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
  const { clock, nap, take } = napping()
  const taken = take()
  await clock.advance(60)
  nap.wake()
  await clock.advance(0)
  expect(taken.isOver).toBe(true)
  expect(clock.pendingTimers).toBe(0)
})
