/** A memory engine, a fake clock and lockers on them: what most tests of core start from. */

import { callWith } from '../src/base/aborting.ts'
import type { HoldfastEvents } from '../src/base/events.ts'
import { onEvent } from '../src/base/events.ts'
import type { Locker } from '../src/base/types.ts'
import { MemoryEngine } from '../src/engines/memory/engine.ts'
import { memory } from '../src/engines/memory/index.ts'
import { createLocker, type LockerOptions } from '../src/locker/locker.ts'
import type { Backend, Call } from '../src/spi.ts'
import { createFakeClock } from '../src/testing/fake-clock.ts'

interface RigLockerOptions extends LockerOptions {
  readonly wrap?: (backend: Backend<'fenced'>) => Backend<'fenced'>
  /** For tests about leases that are no longer referred to. */
  readonly dropsLeases?: boolean
}

/** A lease that a test does not look at again would be released as soon as the garbage collector comes by. */
const kept: unknown[] = []

export function keepingLeases(client: Locker<'fenced'>): Locker<'fenced'> {
  const { acquire, tryAcquire, acquirePermits, tryAcquirePermits, acquireAll } = client
  const keep = <Arguments extends unknown[], Held>(method: (...given: Arguments) => Promise<Held>) => {
    return async (...given: Arguments): Promise<Held> => {
      const held = await method.apply(client, given)
      kept.push(held)
      return held
    }
  }
  return Object.assign(client, {
    acquire: keep(acquire),
    tryAcquire: keep(tryAcquire),
    acquirePermits: keep(acquirePermits),
    tryAcquirePermits: keep(tryAcquirePermits),
    acquireAll: keep(acquireAll),
  })
}

export function createRig() {
  const clock = createFakeClock()
  const engine = new MemoryEngine({ clock })
  return {
    clock,
    engine,
    /** Another client of the engine, as if in another process; `wrap` puts something between it and its backend. */
    locker(options: RigLockerOptions = {}) {
      const { wrap = (backend) => backend, dropsLeases = false, ...lockerOptions } = options
      const client = createLocker(wrap(memory({ engine, clock })), lockerOptions)
      return dropsLeases ? client : keepingLeases(client)
    },
  }
}

/** A call without a limit, for looking at the engine directly. */
export const plainCall: Call = callWith()

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

/** Runs the garbage collector until `isDone`, or gives up. */
export async function collect(isDone: () => boolean, mostTurns = 50): Promise<void> {
  for (let turn = 0; turn < mostTurns && !isDone(); turn++) {
    globalThis.gc?.()
    await new Promise((resolve) => setImmediate(resolve))
  }
}

/** The state of a promise so far, without waiting for it. */
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

/** The messages of the errors that are raised while `body` runs, as uncaught exceptions of the process. */
export async function raisedDuring(body: () => Promise<unknown>): Promise<string[]> {
  const raised: string[] = []
  // The runner would take them for failures of the test.
  const others = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', (error) => raised.push(error.message))
  try {
    await body()
  } finally {
    process.removeAllListeners('uncaughtException')
    for (const listener of others) process.on('uncaughtException', listener)
  }
  return raised
}
