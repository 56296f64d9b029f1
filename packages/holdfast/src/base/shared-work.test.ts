import { describe, expect, test } from 'vitest'
import { createFakeClock } from '../testing/fake-clock.ts'
import { callWith } from './aborting.ts'
import { SharedWork } from './shared-work.ts'

/** Work that the test settles, and the signals that it was started with. */
function work() {
  const runs: (PromiseWithResolvers<string> & { readonly signal: AbortSignal })[] = []
  const start = (signal: AbortSignal) => {
    const run = { ...Promise.withResolvers<string>(), signal }
    signal.addEventListener('abort', () => run.reject(signal.reason))
    runs.push(run)
    return run.promise
  }
  return { runs, start }
}

describe('SharedWork', () => {
  test('callers at the same time share one run, and its result is kept', async () => {
    const { runs, start } = work()
    const flight = new SharedWork('acme', start)
    const both = Promise.all([flight.join(callWith()), flight.join()])
    runs[0]?.resolve('open')
    expect(await both).toEqual(['open', 'open'])
    expect(await flight.join(callWith())).toBe('open')
    expect(runs).toHaveLength(1)
  })

  test('a run that failed is started anew by the next caller', async () => {
    const { runs, start } = work()
    const flight = new SharedWork('acme', start)
    const first = flight.join()
    runs[0]?.reject(new Error('refused'))
    await expect(first).rejects.toThrow('refused')
    expect(flight.started).toBeUndefined()
    const second = flight.join()
    runs[1]?.resolve('open')
    expect(await second).toBe('open')
  })

  test('T102 a cancelled caller leaves the others, and the last one ends the run', async () => {
    const { runs, start } = work()
    const flight = new SharedWork('acme', start)
    const [one, other] = [new AbortController(), new AbortController()]
    const waits = [flight.join(callWith(one.signal)), flight.join(callWith(other.signal))]
    one.abort()
    await expect(waits[0]).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE', outcome: 'not-applied' })
    expect(runs[0]?.signal.aborted).toBe(false)
    other.abort()
    await expect(waits[1]).rejects.toMatchObject({ outcome: 'not-applied' })
    expect(runs[0]?.signal.aborted).toBe(true)
    expect(flight.started).toBeUndefined()
  })

  test('a caller that was cancelled before starts nothing', async () => {
    const { runs, start } = work()
    const flight = new SharedWork('acme', start)
    await expect(flight.join(callWith(AbortSignal.abort()))).rejects.toMatchObject({ outcome: 'not-applied' })
    expect(runs).toHaveLength(0)
  })

  test('a run that takes longer than its limit fails', async () => {
    const clock = createFakeClock()
    const { runs, start } = work()
    const flight = new SharedWork('acme', start, { ms: 100, clock })
    const waiting = flight.join()
    waiting.catch(() => {})
    await clock.advance(100)
    await expect(waiting).rejects.toThrow('within 100 ms')
    expect(runs[0]?.signal.aborted).toBe(true)
    const again = flight.join()
    runs[1]?.resolve('open')
    expect(await again).toBe('open')
    expect(clock.pendingTimers).toBe(0)
  })

  test('a result that is dropped is handed back, and the next caller starts anew', async () => {
    const { runs, start } = work()
    const flight = new SharedWork('acme', start)
    const opened = flight.join()
    runs[0]?.resolve('old')
    await opened
    expect(await flight.drop(new Error('it was lost'))).toBe('old')
    expect(flight.drop(new Error('it was lost'))).toBeUndefined()
    const next = flight.join()
    runs[1]?.resolve('new')
    expect(await next).toBe('new')
  })
})
