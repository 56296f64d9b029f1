import { describe, expect, test } from 'vitest'
import { Cancellation } from '../base/cancellation.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { Lifetime } from './lifetime.ts'
import { LiveEvents } from './live-events.ts'
import { toldEvent } from './watching.ts'

describe('live events', () => {
  test('a watcher that comes while an opening still runs for one that has left waits for it: nothing is seen twice', async () => {
    const clock = createFakeClock()
    const openings: (() => void)[] = []
    let closed = 0
    const source = {
      open: () => new Promise<void>((resolve) => openings.push(resolve)),
      close: () => void closed++,
      holders: () => [],
    }
    const live = new LiveEvents(new Lifetime('test', clock), clock, source)
    const watch = () => {
      const call = new Cancellation()
      const next = live.watch('', undefined, call)[Symbol.asyncIterator]().next()
      return { next, leave: () => call.cancel(new Error('enough')) }
    }
    const settled = () => new Promise((resolve) => setImmediate(resolve))
    const first = watch()
    await settled()
    first.leave()
    await first.next
    const second = watch()
    await settled()
    expect(openings).toHaveLength(1)
    openings[0]?.()
    await settled()
    expect(closed).toBe(0)
    second.leave()
    await second.next
    expect(closed).toBe(1)

    // One that leaves while it opens, and is the last: the opening closes what it has opened.
    const last = watch()
    await settled()
    last.leave()
    await last.next
    expect(closed).toBe(1)
    openings[1]?.()
    await settled()
    expect(closed).toBe(2)
  })

  test('what was missed is told as a gap with the holders, at most once a second, and nothing is left of it when nobody listens', async () => {
    const clock = createFakeClock()
    const held = toldEvent({ kind: 'acquired', name: 'x', id: 'a', holder: 'ada', token: 7n })
    const source = { open: async () => {}, close: () => {}, holders: () => [held] }
    const live = new LiveEvents(new Lifetime('test', clock), clock, source)
    const call = new Cancellation()
    const told: string[] = []
    const startMs = clock.monotonicMs()
    const watching = (async () => {
      for await (const { kind } of live.watch('', undefined, call))
        told.push(`${kind} ${clock.monotonicMs() - startMs}`)
    })()
    await clock.settle()
    for (let times = 0; times < 7; times++) {
      live.missed()
      await clock.advance(300)
    }
    expect(told).toEqual(['gap 1000', 'acquired 1000'])
    await clock.advance(1_000)
    expect(told.slice(2)).toEqual(['gap 2200', 'acquired 2200'])
    live.missed()
    call.cancel(new Error('enough'))
    await watching
    expect(clock.pendingTimers).toBe(0)
  })
})
