/** On memory and the fake clock: rows of the guide's tables, skewed replicas, daylight saving, hostile input. */
import { Cron } from 'croner'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { MemoryEngine, memory } from '../backends/memory/index.ts'
import type { Locker } from '../base/types.ts'
import { createLocker } from '../locker/locker.ts'
import type { Backend } from '../spi.ts'
import { createFakeClock, type FakeClock } from '../testing/fake-clock.ts'
import { type FaultyBackend, faultyBackend } from '../testing/faulty-backend.ts'
import { type ScheduleOptions, schedule, type TickOptions, type TickRun, tickRunner } from './schedule.ts'

const HOUR = 3_600_000
const MINUTE = 60_000
const TTL_MS = 10_000
const NAME = 'nightly'

interface Replica {
  readonly locker: Locker<'fenced'>
  readonly wire: FaultyBackend<'fenced'>
}

class World {
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

const at = (wall: string) => new World(wall)
const morning = '2026-11-14T09:30:00Z'
const tenOClock = Date.parse('2026-11-14T10:00:00Z')

describe('a schedule', () => {
  test('runs each tick on one of three replicas, with fence and signal', async () => {
    const world = at(morning)
    const runs: TickRun<'fenced'>[] = []
    for (const name of ['A', 'B', 'C'])
      await world.schedule(world.replica(name), {}, (run) => void runs.push(run))
    await world.clock.advance(3 * HOUR)
    expect(runs.map(({ tick }) => tick.id.slice(11, 16))).toEqual(['10:00', '11:00', '12:00'])
    const tokens = runs.map(({ lease }) => lease.fence.token)
    expect(tokens).toEqual([...tokens].sort((a, b) => Number(a - b)))
    expect(runs[0]?.signal.aborted).toBe(false)
    expect(world.errors).toEqual([])
    expect(await world.record()).toMatchObject({ state: 'done', starts: 1 })
  })

  test.each([0, 20 * MINUTE])(
    'with skewed clocks runs each tick once (hold at least %i)',
    async (holdAtLeastMs) => {
      const world = at(morning)
      const skews = { A: 0, B: 7 * MINUTE, C: -9 * MINUTE, D: -800, E: 12_345 }
      for (const [name, skewMs] of Object.entries(skews))
        await world.schedule(world.replica(name, skewMs), { holdAtLeastMs })
      await world.clock.advance(4 * HOUR + 15 * MINUTE)
      expect(world.started.map((each) => each.slice(0, 5))).toEqual(['10:00', '11:00', '12:00', '13:00'])
      expect(world.errors).toEqual([])
    },
  )

  test('that is far behind is told by a replica whose clock finds the record in the future', async () => {
    const world = at(morning)
    await world.ticks(world.replica('A')).run(tenOClock + 48 * HOUR)
    expect(await world.ticks(world.replica('B')).run(tenOClock)).toBe('left')
    expect(String(world.errors[0])).toMatch(/which this clock has in \d+ s.*forget/)
  })

  test('goes on when the wall clock is set, and starts no tick twice', async () => {
    const world = at(morning)
    await world.schedule(world.replica('A'))
    await world.clock.advance(HOUR)
    world.clock.stepWall(-HOUR)
    await world.clock.advance(HOUR)
    world.clock.stepWall(HOUR)
    await world.clock.advance(HOUR)
    expect(world.started).toEqual(['10:00 A', '11:00 A', '12:00 A'].slice(0, world.started.length))
    expect(world.started.length).toBeGreaterThanOrEqual(2)
  })
})

describe('missed ticks', () => {
  test.each([
    ['skip', ['10:00 A', '14:00 B']],
    ['last', ['10:00 A', '13:00 B', '14:00 B']],
    ['all', ['10:00 A', '11:00 B', '12:00 B', '13:00 B', '14:00 B']],
  ] as const)('with %s, after a time without replicas', async (missed, expected) => {
    const world = at(morning)
    const first = await world.schedule(world.replica('A'), { missed })
    await world.clock.advance(HOUR)
    await first.close()
    await world.clock.advance(3 * HOUR)
    await world.schedule(world.replica('B'), { missed })
    await world.clock.advance(HOUR)
    expect(world.started).toEqual(expected)
  })

  test('a schedule that never ran has missed none', async () => {
    const world = at(morning)
    await world.schedule(world.replica('A'), { missed: 'all' })
    await world.clock.advance(MINUTE)
    expect(world.started).toEqual([])
  })

  test('all is bounded by maxMissed', async () => {
    const world = at(morning)
    await world.ticks(world.replica('A')).run(tenOClock - 2_000 * HOUR)
    await world.schedule(world.replica('B'), { missed: 'all', maxMissed: 3 })
    await world.clock.advance(MINUTE)
    expect(world.started.slice(1)).toEqual(['07:00 B', '08:00 B', '09:00 B'])
  })
})

describe('overruns', () => {
  const long = (world: World) => {
    let runs = 0
    return (run: TickRun<'fenced'>) => (runs++ === 0 ? world.lasting(2.5 * HOUR)(run) : undefined)
  }
  test.each([
    ['skip', 'skip', 'skip', ['10:00 A', '13:00 A']],
    ['skip', 'skip', 'all', ['10:00 A', '13:00 A']],
    ['rerun', 'skip', 'skip', ['10:00 A', '13:00 A']],
    ['skip', 'wait', 'skip', ['10:00 A', '12:00', '13:00']],
    ['skip', 'wait', 'all', ['10:00 A', '11:00', '12:00', '13:00']],
    ['rerun', 'wait', 'skip', ['10:00 A', '12:00', '13:00']],
  ] as const)('policy %s, overrun %s, missed %s', async (policy, overrun, missed, expected) => {
    for (const replicas of [1, 3]) {
      const world = at(morning)
      const work = long(world)
      for (const name of ['A', 'B', 'C'].slice(0, replicas))
        await world.schedule(world.replica(name), { policy, overrun, missed }, work)
      await world.clock.advance(3 * HOUR + 40 * MINUTE)
      const starts = world.started.map((each) => each.slice(0, 5))
      expect(starts, `${replicas} replicas`).toEqual(expected.map((each) => each.slice(0, 5)))
    }
  })
})

describe('the policy skip', () => {
  test('schedule-start-recorded: a tick whose runner died in its job does not start again', async () => {
    const world = at(morning)
    const [a, b] = [world.replica('A'), world.replica('B')]
    void world.ticks(a, {}, world.lasting(HOUR)).run(tenOClock)
    await world.clock.settle()
    a.wire.freeze()
    await world.clock.advance(2 * TTL_MS)
    expect(await world.ticks(b).run(tenOClock)).toBe('left')
    expect(await world.ticks(b).run(tenOClock + HOUR)).toBe('ran')
    expect(world.started).toEqual(['10:00 A', '11:00 B'])
  })

  test('schedule-unconfirmed-start: a start whose write is not confirmed does not run the job', async () => {
    const world = at(morning)
    const a = world.replica('A')
    a.wire.next('setData', { kind: 'error-after' })
    const running = world.ticks(a).run(tenOClock)
    await world.clock.advance(MINUTE)
    expect(await running).toBe('left')
    expect(world.started).toEqual([])
    expect(await world.record()).toMatchObject({ tick: tenOClock, state: 'started' })
    expect(world.errors).toMatchObject([{ code: 'BACKEND_UNAVAILABLE' }])
  })

  test('a start whose write was refused is tried again', async () => {
    const world = at(morning)
    const a = world.replica('A')
    a.wire.next('setData', { kind: 'error-before' })
    const running = world.ticks(a).run(tenOClock)
    await world.clock.advance(MINUTE)
    expect(await running).toBe('ran')
    expect(world.started).toEqual(['10:00 A'])
  })

  test('a start that is confirmed after the end of the lease does not run the job', async () => {
    const world = at(morning)
    const a = world.replica('A')
    const locker = createLocker(a.wire, { holder: 'slow', ttlMs: TTL_MS, callTimeoutMs: 10 * TTL_MS })
    a.wire.next('setData', { kind: 'late-reply', ms: 2 * TTL_MS })
    a.wire.next('keepAlive', { kind: 'lost-request' })
    const running = world.ticks({ locker, wire: a.wire }).run(tenOClock)
    await world.clock.settle()
    world.clock.block(2 * TTL_MS)
    await world.clock.advance(5 * MINUTE)
    expect(await running).toBe('left')
    expect(world.started).toEqual([])
  })

  test('a job that throws is reported, is not started again, and the schedule goes on', async () => {
    const world = at(morning)
    await world.schedule(world.replica('A'), {}, () => Promise.reject(new Error('no paper')))
    await world.clock.advance(2 * HOUR)
    expect(world.started).toEqual(['10:00 A', '11:00 A'])
    expect(world.errors.map(String)).toEqual(['Error: no paper', 'Error: no paper'])
  })
})

describe('the policy rerun', () => {
  const rerun = { policy: 'rerun' } as const

  test('schedule-one-stand-by: of those that find the tick running one waits, and it leaves when the tick is done', async () => {
    const world = at(morning)
    const [a, b, c] = [world.replica('A'), world.replica('B'), world.replica('C')]
    const running = world.ticks(a, rerun, world.lasting(MINUTE)).run(tenOClock)
    await world.clock.settle()
    const standing = world.ticks(b, rerun).run(tenOClock)
    await world.clock.settle()
    expect(await world.ticks(c, rerun).run(tenOClock)).toBe('left')
    await world.clock.advance(MINUTE)
    expect(await Promise.all([running, standing])).toEqual(['ran', 'left'])
    expect(world.started).toEqual(['10:00 A'])
  })

  test('schedule-rerun: a tick whose runner died starts again on the stand-by, once', async () => {
    const world = at(morning)
    const [a, b] = [world.replica('A'), world.replica('B')]
    const stale = world.ticks(a, rerun, world.lasting(HOUR)).run(tenOClock)
    await world.clock.settle()
    const standing = world.ticks(b, rerun).run(tenOClock)
    await world.clock.settle()
    a.wire.freeze()
    await world.clock.advance(2 * TTL_MS)
    expect(await standing).toBe('ran')
    a.wire.unfreeze()
    await world.clock.advance(MINUTE)
    expect(await stale).toBe('left')
    expect(world.started).toEqual(['10:00 A', '10:00 B #2'])
  })

  test('if runner and stand-by are gone, the next tick finds it, and so does the next start of a schedule', async () => {
    const world = at(morning)
    const [a, b, c] = [world.replica('A'), world.replica('B'), world.replica('C')]
    const die = async ({ wire }: Replica) => {
      await world.clock.settle()
      wire.freeze()
      await world.clock.advance(2 * TTL_MS)
    }
    void world.ticks(a, rerun, world.lasting(HOUR)).run(tenOClock)
    await die(a)
    void world.ticks(b, rerun, world.lasting(HOUR)).run(tenOClock + HOUR)
    await die(b)
    await world.schedule(c, rerun)
    await world.clock.advance(MINUTE)
    expect(world.started).toEqual(['10:00 A', '10:00 B #2', '10:00 C #3'])
  })

  test('after an unfinished tick, the tick that found it runs', async () => {
    const world = at(morning)
    const [a, b] = [world.replica('A'), world.replica('B')]
    void world.ticks(a, rerun, world.lasting(HOUR)).run(tenOClock)
    await world.clock.settle()
    a.wire.freeze()
    await world.clock.advance(2 * HOUR)
    await world.ticks(b, rerun).run(tenOClock + 2 * HOUR)
    expect(world.started).toEqual(['10:00 A', '10:00 B #2', '12:00 B'])
  })

  test('schedule-starts-limited: a job that throws runs again after a pause, and is set aside after maxStarts', async () => {
    const world = at(morning)
    const refusing = () => Promise.reject(new Error('no'))
    const running = world
      .ticks(world.replica('A'), { ...rerun, maxStarts: 2, rerunAfterMs: MINUTE }, refusing)
      .run(tenOClock)
    await world.clock.advance(MINUTE / 2)
    expect(world.started).toHaveLength(1)
    await world.clock.advance(HOUR)
    expect(await running).toBe('set-aside')
    expect(world.started).toEqual(['10:00 A', '10:00 A #2'])
    expect(world.setAside).toEqual(['10:00 2'])
    expect(await world.record()).toMatchObject({ state: 'set-aside', starts: 2, setAside: [tenOClock] })
  })

  test('schedule-starts-limited: a tick that kills its runners is set aside, and the next one runs', async () => {
    const world = at(morning)
    for (const name of ['A', 'B', 'C']) {
      const replica = world.replica(name)
      void world.ticks(replica, rerun, world.lasting(HOUR)).run(tenOClock)
      await world.clock.settle()
      replica.wire.freeze()
      await world.clock.advance(2 * TTL_MS)
    }
    expect(await world.ticks(world.replica('D'), rerun).run(tenOClock + HOUR)).toBe('ran')
    expect(world.started).toEqual(['10:00 A', '10:00 B #2', '10:00 C #3', '11:00 D'])
    expect(world.setAside).toEqual(['10:00 3'])
  })

  test('schedule-done-is-kept: a tick that is done does not start again because the write of it failed', async () => {
    const world = at(morning)
    const [a, b] = [world.replica('A'), world.replica('B')]
    const failing = ({ lease }: TickRun<'fenced'>) => {
      expect(lease.name).toBe(NAME)
      a.wire.next('setData', { kind: 'error-before' })
      a.wire.next('setData', { kind: 'lost-request' })
    }
    const running = world.ticks(a, rerun, failing).run(tenOClock)
    const standing = world.ticks(b, rerun).run(tenOClock)
    await world.clock.advance(MINUTE)
    expect(await Promise.all([running, standing])).toEqual(['ran', 'left'])
    expect(world.started).toEqual(['10:00 A'])
  })

  test('a start that close has ended is left to others and does not count', async () => {
    const world = at(morning)
    const [a, b] = [world.replica('A'), world.replica('B')]
    const first = world.ticks(a, { ...rerun, maxStarts: 1 }, world.lasting(HOUR))
    void first.run(tenOClock)
    await world.clock.settle()
    const standing = world.ticks(b, { ...rerun, maxStarts: 1 }).run(tenOClock)
    await world.clock.settle()
    await first.close()
    expect(await standing).toBe('ran')
    expect(world.started).toEqual(['10:00 A', '10:00 B'])
  })
})

describe('closing', () => {
  test('T53 aborts the signal, waits for the job, and only then gives the lease up', async () => {
    const world = at(morning)
    const [a, b] = [world.replica('A'), world.replica('B')]
    const told = Promise.withResolvers<void>()
    const ended = Promise.withResolvers<void>()
    const running = await world.schedule(a, {}, ({ signal }) => {
      signal.addEventListener('abort', () => told.resolve())
      return ended.promise
    })
    await world.clock.advance(HOUR)
    let isClosed = false
    const closing = running.close().then(() => {
      isClosed = true
    })
    await told.promise
    await world.clock.settle()
    expect(isClosed).toBe(false)
    expect((await b.locker.inspect(NAME))?.holders).toHaveLength(1)
    ended.resolve()
    await closing
    expect((await b.locker.inspect(NAME))?.holders ?? []).toEqual([])
    expect(await world.record()).toMatchObject({ state: 'done' })
  })

  test('ends a stand-by, a sleep and a retry, and leaves no timer of its own', async () => {
    const world = at(morning)
    const stop = new AbortController()
    const [a, b, c] = [world.replica('A'), world.replica('B'), world.replica('C')]
    const runner = await world.schedule(a, { policy: 'rerun' }, world.lasting(2 * HOUR))
    const waiting = await world.schedule(b, { policy: 'rerun', signal: stop.signal })
    await world.clock.advance(HOUR)
    c.wire.cutOff()
    const retrying = world.ticks(c)
    const retried = retrying.run(tenOClock)
    await world.clock.advance(5_000)
    stop.abort()
    await Promise.all([waiting.close(), runner.close(), retrying.close()])
    expect(await retried).toBe('stopped')
    c.wire.restore()
    await Promise.all([a, b, c].map(({ locker }) => locker.close()))
    expect(world.clock.pendingTimers).toBe(0)
    expect(world.started).toEqual(['10:00 A'])
  })

  test('a locker that is closed ends its schedules', async () => {
    const world = at(morning)
    const a = world.replica('A')
    const running = await world.schedule(a, {})
    await a.locker.close()
    await world.clock.advance(3 * HOUR)
    expect(world.errors).toMatchObject([{ code: 'CLOSED' }])
    await running.close()
  })
})

describe('an engine that is down', () => {
  test('T87 is asked again with growing pauses, and the tick that is then due runs', async () => {
    const world = at(morning)
    const a = world.replica('A')
    await world.schedule(a, {})
    a.wire.cutOff()
    await world.clock.advance(3 * HOUR + MINUTE)
    const calls = a.wire.log.length
    expect(calls).toBeGreaterThan(3)
    expect(calls).toBeLessThan(600)
    a.wire.restore()
    await world.clock.advance(MINUTE)
    expect(world.started).toEqual(['12:00 A'])
  })
})

describe('data of another program', () => {
  const good = {
    holdfast: 'schedule/1',
    tick: tenOClock,
    state: 'done',
    starts: 1,
    token: '1',
    since: 1,
    until: 2,
    setAside: [],
  }
  test.each([
    'hello',
    '7',
    'null',
    '{"v":1}',
    JSON.stringify({ ...good, holdfast: 'schedule/2' }),
    JSON.stringify({ ...good, state: 'unknown' }),
    JSON.stringify({ ...good, tick: '2026' }),
    JSON.stringify({ ...good, setAside: 1 }),
  ])('is refused and not overwritten: %s', async (data) => {
    const world = at(morning)
    const a = world.replica('A')
    await a.locker.withLease(NAME, (lease) => lease.setData(data))
    expect(await world.ticks(a).run(tenOClock)).toBe('error')
    expect(world.errors).toMatchObject([
      { code: 'UNSUPPORTED', message: expect.stringContaining('not the record') },
    ])
    expect(world.started).toEqual([])
    expect(await a.locker.withLease(NAME, (lease) => lease.previousData)).toBe(data)
  })
})

describe('daylight saving', () => {
  const zones = [
    ['Europe/Berlin', '2026-03-28T20:30:00Z', '30 2 * * *', ['01:00']],
    ['Europe/Berlin', '2026-10-24T20:30:00Z', '30 2 * * *', ['00:30']],
    ['America/New_York', '2026-03-08T01:30:00Z', '30 2 * * *', ['07:00']],
    ['America/New_York', '2026-11-01T01:30:00Z', '30 1 * * *', ['05:30']],
    ['Australia/Lord_Howe', '2026-10-03T10:30:00Z', '15 2 * * *', ['15:30']],
    ['Australia/Lord_Howe', '2026-04-04T10:30:00Z', '45 1 * * *', ['14:45']],
  ] as const
  test.each(zones)(
    'in %s, from %s, a daily job (%s %s) runs once',
    async (timeZone, from, cron, expected) => {
      const world = at(from)
      for (const [name, skewMs] of Object.entries({ A: 0, B: 4 * MINUTE, C: -6 * MINUTE }))
        await world.schedule(world.replica(name, skewMs), { cron, timeZone })
      await world.clock.advance(14 * HOUR)
      expect(world.started.map((each) => each.slice(0, 5))).toEqual(expected)
    },
  )

  test.each(zones)('in %s, from %s, an hourly job runs every hour', async (timeZone, from) => {
    const world = at(from)
    for (const name of ['A', 'B']) await world.schedule(world.replica(name), { cron: '0 * * * *', timeZone })
    await world.clock.advance(14 * HOUR)
    // Lord Howe moves its clock by half an hour: the local full hour comes after half an hour, or after one and a half.
    expect(world.started.length).toBeGreaterThanOrEqual(13)
    expect(new Set(world.started.map((each) => each.slice(0, 5))).size).toBe(world.started.length)
    if (timeZone !== 'Australia/Lord_Howe') expect(world.started).toHaveLength(14)
  })
})

describe('hostile input', () => {
  const bad: [string, unknown, RegExp][] = [
    ['neither cron nor everyMs', {}, /one of cron and everyMs/],
    ['both', { cron: '0 3 * * *', everyMs: 1_000 }, /one of cron and everyMs/],
    ['everyMs 0', { everyMs: 0 }, /everyMs must be at least 100/],
    ['everyMs NaN', { everyMs: Number.NaN }, /everyMs must be a number/],
    ['everyMs Infinity', { everyMs: Number.POSITIVE_INFINITY }, /everyMs must be finite/],
    ['everyMs as text', { everyMs: '5s' }, /everyMs must be a number/],
    ['everyMs 100.5', { everyMs: 100.5 }, /whole number/],
    ['no cron', { cron: 'every day' }, /cron is refused/],
    ['an empty cron', { cron: '' }, /cron must not be empty/],
    ['a long cron', { cron: '*'.repeat(5_000) }, /cron must have at most/],
    ['61 minutes', { cron: '61 * * * *' }, /cron is refused/],
    ['30 February', { cron: '0 0 30 2 *' }, /no time in the future/],
    ['a date that is over', { cron: '2020-01-01T00:00:00' }, /no time in the future/],
    ['an object', { cron: { next: () => null } }, /cron must be a cron expression, or a Cron/],
    [
      'a zone that is not there',
      { cron: '0 3 * * *', timeZone: 'Mars/Base' },
      /cron is refused: .*Mars\/Base/,
    ],
    ['a zone without a cron', { everyMs: 1_000, timeZone: 'UTC' }, /timeZone belongs to/],
    ['an unknown option', { everyMs: 1_000, timezone: 'UTC' }, /no option "timezone"/],
    ['an unknown policy', { everyMs: 1_000, policy: 'retry' }, /policy must be one of/],
    ['missed true', { everyMs: 1_000, missed: true }, /missed must be one of/],
    ['maxStarts 0', { everyMs: 1_000, maxStarts: 0 }, /maxStarts must be at least 1/],
    [
      'a hold that reaches the next tick',
      { everyMs: 1_000, holdAtLeastMs: 900 },
      /holdAtLeastMs must be at most 500/,
    ],
    ['a negative hold', { everyMs: 1_000, holdAtLeastMs: -1 }, /holdAtLeastMs must be at least 0/],
    ['no signal', { everyMs: 1_000, signal: {} }, /signal must be an AbortSignal/],
    ['no callback', { everyMs: 1_000, onError: 'log' }, /onError must be a function/],
    ['an empty name', { everyMs: 1_000, name: '' }, /name must not be empty/],
  ]
  test.each(bad)('%s', async (_, options, message) => {
    const world = at(morning)
    const { locker } = world.replica('A')
    const whole = { name: NAME, ...(options as object) } as ScheduleOptions
    await expect(schedule(locker, whole, () => {})).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringMatching(message),
    })
  })

  test('no job, no options, no locker, no date', async () => {
    const { locker } = at(morning).replica('A')
    const when = { name: NAME, everyMs: 1_000 }
    await expect(schedule(locker, when, undefined as never)).rejects.toThrow(/job must be a function/)
    await expect(schedule(locker, undefined as never, () => {})).rejects.toThrow(/options must be an object/)
    await expect(schedule({} as never, when, () => {})).rejects.toThrow(/locker must be a locker/)
    expect(() => tickRunner(locker, { ...when } as never, () => {})).toThrow(/no option "everyMs"/)
    for (const date of [Number.NaN, new Date('never'), 'today', undefined])
      expect(() => tickRunner(locker, { name: NAME }, () => {}).run(date as never)).toThrow(/must be a date/)
  })

  test('an unfenced locker must be asked for', async () => {
    const { locker } = at(morning).replica('A')
    const info = { ...locker.info, fencing: 'unfenced' as const, name: 'acme' }
    const unfenced = Object.assign(Object.create(locker), { info, fencing: 'unfenced' }) as Locker<'unfenced'>
    const when = { name: NAME, everyMs: 1_000 }
    await expect(schedule(unfenced, when, () => {})).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    const allowed = await schedule(unfenced, { ...when, allowUnfenced: true }, () => {})
    await allowed.close()
  })

  test('a Cron of the user has its own zone', async () => {
    const world = at(morning)
    await world.schedule(world.replica('A'), { cron: new Cron('0 12 * * *', { timezone: 'Asia/Tokyo' }) })
    await world.clock.advance(24 * HOUR)
    expect(world.started).toEqual(['03:00 A'])
  })

  test('errors without onError are warnings of the process', async () => {
    const warnings = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    onTestFinished(() => warnings.mockRestore())
    const world = at(morning)
    const { locker } = world.replica('A')
    await tickRunner(locker, { name: NAME }, () => Promise.reject(new Error('no paper'))).run(tenOClock)
    expect(warnings.mock.calls[0]?.[0]).toBe('schedule "nightly", tick 2026-11-14T10:00:00.000Z: no paper')
  })
})
