/** Replicas of one schedule on memory and the fake clock, with skewed wall clocks and faulty wires. */
import { onTestFinished } from 'vitest'
import type { Locker } from '../../src/base/types.ts'
import { MemoryEngine, memory } from '../../src/engines/memory/index.ts'
import { createLocker } from '../../src/locker/locker.ts'
import {
  type ScheduleOptions,
  schedule,
  type TickOptions,
  type TickRun,
  tickRunner,
} from '../../src/recipes/schedule.ts'
import type { Backend } from '../../src/spi.ts'
import { createFakeClock, type FakeClock } from '../../src/testing/fake-clock.ts'
import { type FaultyBackend, faultyBackend } from '../../src/testing/faulty-backend.ts'

export const HOUR = 3_600_000
export const MINUTE = 60_000
export const TTL_MS = 10_000
export const NAME = 'nightly'

export interface Replica {
  readonly locker: Locker<'fenced'>
  readonly wire: FaultyBackend<'fenced'>
}

export class World {
  readonly clock: FakeClock
  readonly #engine: MemoryEngine
  /** `10:00 A`: which replica started which tick, in order. `10:00 A #2` for a second start. */
  readonly started: string[] = []
  readonly errors: unknown[] = []
  readonly setAside: string[] = []

  constructor(wall: string) {
    this.clock = createFakeClock({ wallMs: Date.parse(wall) })
    this.#engine = new MemoryEngine({ clock: this.clock })
    onTestFinished(() => this.#engine[Symbol.dispose]())
  }

  replica(holder: string, skewMs = 0): Replica {
    const { clock } = this
    const skewed = { ...clock, wallMs: () => clock.wallMs() + skewMs }
    const backend = memory({ engine: this.#engine, clock: skewed }) as Backend<'fenced'>
    const wire = faultyBackend(backend)
    return { wire, locker: createLocker(wire, { holder, ttlMs: TTL_MS, callTimeoutMs: 2_000 }) }
  }

  /** Notes each start; then the job, which does nothing by default. */
  job(work: (run: TickRun<'fenced'>) => unknown = () => {}) {
    return (run: TickRun<'fenced'>) => {
      const { tick, lease } = run
      this.started.push(`${tick.id.slice(11, 16)} ${lease.holder}${tick.start > 1 ? ` #${tick.start}` : ''}`)
      return work(run)
    }
  }

  get callbacks(): Pick<TickOptions, 'onError' | 'onSetAside'> {
    return {
      onError: (error) => void this.errors.push(error),
      onSetAside: ({ id, starts }) => void this.setAside.push(`${id.slice(11, 16)} ${starts}`),
    }
  }

  schedule(
    { locker }: Replica,
    options: Partial<ScheduleOptions> = {},
    work?: (run: TickRun<'fenced'>) => unknown,
  ) {
    const when = options.cron === undefined ? { everyMs: HOUR } : {}
    return schedule(locker, { name: NAME, ...when, ...this.callbacks, ...options }, this.job(work))
  }

  ticks({ locker }: Replica, options: Partial<TickOptions> = {}, work?: (run: TickRun<'fenced'>) => unknown) {
    return tickRunner(locker, { name: NAME, ...this.callbacks, ...options }, this.job(work))
  }

  /** As the next holder finds it. */
  async record(): Promise<unknown> {
    const data = await this.replica('reader').locker.withLease(
      NAME,
      { waitMs: 0 },
      (lease) => lease.previousData,
    )
    return data === undefined ? undefined : JSON.parse(data)
  }

  /** A job that ends after so long, or when it is told to stop. */
  lasting(ms: number) {
    return ({ signal }: TickRun<'fenced'>) =>
      new Promise<void>((resolve, reject) => {
        const timer = this.clock.setTimer(ms, resolve)
        signal.addEventListener('abort', () => {
          timer.cancel()
          reject(signal.reason)
        })
      })
  }
}

export const at = (wall: string) => new World(wall)
export const morning = '2026-11-14T09:30:00Z'
export const tenOClock = Date.parse('2026-11-14T10:00:00Z')
