/** A memory engine, a fake clock and lockers on them: what most tests of core start from. */
import { MemoryEngine, memory } from '../src/backends/memory/index.ts'
import type { HoldfastEvents } from '../src/core/events.ts'
import { onEvent } from '../src/core/events.ts'
import { createLocker, type LockerOptions } from '../src/core/locker.ts'
import type { Backend, Call } from '../src/spi.ts'
import { createFakeClock } from '../src/testing/fake-clock.ts'

export function createRig() {
  const clock = createFakeClock()
  const engine = new MemoryEngine({ clock })
  return {
    clock,
    engine,
    /** Another client of the engine, as if in another process; `wrap` puts something between it and its backend. */
    locker(options: LockerOptions & { wrap?: (backend: Backend<'fenced'>) => Backend<'fenced'> } = {}) {
      const { wrap = (backend) => backend, ...lockerOptions } = options
      return createLocker(wrap(memory({ engine, clock })), lockerOptions)
    },
  }
}

/** A call that nobody limits, for looking at the engine directly. */
export const plainCall: Call = { signal: new AbortController().signal }

/** Collects the events of one kind while `body` runs. */
export async function eventsDuring<K extends keyof HoldfastEvents>(
  kind: K,
  body: () => Promise<unknown>,
): Promise<HoldfastEvents[K][]> {
  const events: HoldfastEvents[K][] = []
  const stop = onEvent(kind, (event) => void events.push(event))
  try {
    await body()
  } finally {
    stop()
  }
  return events
}

/** What a promise has come to so far, without waiting for it. */
export function peek<T>(promise: Promise<T>) {
  const seen: { status: 'pending' | 'fulfilled' | 'rejected'; value?: T; reason?: unknown } = {
    status: 'pending',
  }
  promise.then(
    (value) => Object.assign(seen, { status: 'fulfilled', value }),
    (reason: unknown) => Object.assign(seen, { status: 'rejected', reason }),
  )
  return seen
}
