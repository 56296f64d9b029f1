/** On memory and the fake clock: policies, closing, faults, hostile input. `test/recipes/` has the rest. */
import { Cron } from 'croner'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import {
  at,
  HOUR,
  MINUTE,
  morning,
  NAME,
  type Replica,
  TTL_MS,
  tenOClock,
} from '../../test/recipes/schedule-world.ts'
import type { LeaseLostError } from '../base/errors.ts'
import { overriding } from '../base/overriding.ts'
import type { Locker } from '../base/types.ts'
import { createLocker } from '../locker/locker.ts'
import { type ScheduleOptions, schedule, type Tick, type TickRun, tickRunner } from './schedule.ts'

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

describe('errors', () => {
  test.each([
    ['passes the loss on', undefined],
    ['throws an error of its own', new Error('interrupted')],
    ['returns', 'returns'],
  ])('a lease that is lost while the job runs is told once, if the job %s', async (_, end) => {
    const world = at(morning)
    const a = world.replica('A')
    const told: [unknown, string | undefined][] = []
    const job = async ({ lease, signal }: TickRun<'fenced'>) => {
      await world.replica('operator').locker.forceRelease(NAME, { all: true, reason: 'a test' })
      await lease.renew().catch(() => {})
      if (end === undefined) signal.throwIfAborted()
      if (end instanceof Error) throw end
    }
    const onError = (error: unknown, tick: Tick | null) => void told.push([error, tick?.id])
    const running = world.ticks(a, { onError }, job).run(tenOClock)
    await world.clock.advance(MINUTE)
    expect(await running).toBe('left')
    const losses = told.filter(([error]) => (error as LeaseLostError).code === 'LEASE_LOST')
    expect(losses).toHaveLength(1)
    expect(told).toHaveLength(end instanceof Error ? 2 : 1)
    // With its tick, also where the job has not passed it on.
    expect(losses[0]?.[1]).toBe('2026-11-14T10:00:00.000Z')
  })
})

describe('closing', () => {
  test('T53 aborts the signal, waits for the job, and only then gives the lease up', async () => {
    const world = at(morning)
    const [a, b] = [world.replica('A'), world.replica('B')]
    const told = Promise.withResolvers<void>()
    const ended = Promise.withResolvers<void>()
    const running = world.ticks(a, {}, ({ signal }) => {
      signal.addEventListener('abort', () => told.resolve())
      return ended.promise
    })
    void running.run(tenOClock)
    await world.clock.settle()
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

  test('T87 while the engine is down, the end of a job is not written again and again', async () => {
    const world = at(morning)
    const a = world.replica('A')
    const ticks = world.ticks(a, {}, () => a.wire.cutOff())
    const running = ticks.run(tenOClock)
    await world.clock.settle()
    expect(a.wire.count('setData')).toBe(2)
    const closing = ticks.close()
    await world.clock.advance(MINUTE)
    await closing
    expect(await running).toBe('stopped')
    expect(a.wire.count('setData')).toBeLessThan(5)
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

  test('while its locker drains, a job that runs is not told to stop, and no other tick starts', async () => {
    const world = at(morning)
    const a = world.replica('A')
    const ticks = world.ticks(a, {}, world.lasting(MINUTE))
    const running = ticks.run(tenOClock)
    await world.clock.settle()
    const closed = a.locker.close({ drainMs: HOUR })
    expect(await ticks.run(tenOClock + 1_000)).toBe('stopped')
    await world.clock.advance(MINUTE)
    expect(await running).toBe('ran')
    await closed
    expect(await ticks.run(tenOClock + 2_000)).toBe('stopped')
    expect(world.errors).toMatchObject([{ code: 'CLOSED' }])
    expect(await world.record()).toMatchObject({ tick: tenOClock, state: 'done' })
  })

  test('while its locker drains, a job that fails by itself has used up a start', async () => {
    const world = at(morning)
    const a = world.replica('A')
    const ticks = world.ticks(a, {}, async (run) => {
      await world.lasting(MINUTE)(run)
      throw new Error('no paper')
    })
    const running = ticks.run(tenOClock)
    await world.clock.settle()
    const closed = a.locker.close({ drainMs: HOUR })
    expect(await ticks.run(tenOClock + 1_000)).toBe('stopped')
    await world.clock.advance(MINUTE)
    expect(await running).toBe('failed')
    await closed
    expect(await world.record()).toMatchObject({ tick: tenOClock, state: 'failed', starts: 1 })
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

describe("T97 with missed: 'all', each tick that fell due while no job could run is run", () => {
  const SECOND = 1_000
  const every = { everyMs: SECOND, missed: 'all' } as const
  /** From one second of the world to another, both included. */
  const seconds = (from: number, to: number) =>
    Array.from({ length: to - from + 1 }, (_, index) => (from + index) * SECOND)
  const wall = Date.parse(morning)

  async function ticking(options: Partial<ScheduleOptions>, names: readonly string[], lastsMs = 0) {
    const world = at(morning)
    const starts: number[] = []
    const replicas = names.map((name) => world.replica(name))
    for (const replica of replicas)
      await world.schedule(replica, { ...every, ...options }, (run) => {
        starts.push(run.tick.scheduledAt.getTime() - wall)
        return lastsMs > 0 ? world.lasting(lastsMs)(run) : undefined
      })
    return { world, starts, replicas }
  }

  describe.each(['skip', 'rerun'] as const)('policy %s', (policy) => {
    test.each([1, 3])('after an outage of several ticks, with %d replicas', async (count) => {
      const { world, starts, replicas } = await ticking({ policy }, ['A', 'B', 'C'].slice(0, count))
      await world.clock.advance(3 * SECOND)
      for (const { wire } of replicas) wire.cutOff()
      await world.clock.advance(6.5 * SECOND)
      for (const { wire } of replicas) wire.restore()
      await world.clock.advance(2 * MINUTE)
      expect(starts).toEqual(seconds(1, starts.length))
      expect(starts.length).toBeGreaterThanOrEqual(128)
    })

    test('after outages in the middle of catching up, and overruns stay overruns', async () => {
      const world = at(morning)
      const [a, b] = [world.replica('A'), world.replica('B')]
      const runs: { tick: number; fromMs: number; untilMs: number; isCut: boolean }[] = []
      let isCut = false
      const now = () => Math.round(world.clock.wallMs())
      const job = async (run: TickRun<'fenced'>) => {
        const tick = run.tick.scheduledAt.getTime()
        const noted = { tick, fromMs: now(), untilMs: Number.MAX_VALUE, isCut: false }
        runs.push(noted)
        await world
          .lasting(700)(run)
          .finally(() => {
            Object.assign(noted, { untilMs: now(), isCut })
          })
      }
      for (const replica of [a, b]) await world.schedule(replica, { ...every, policy, maxStarts: 100 }, job)
      for (const _ of [1, 2, 3]) {
        await world.clock.advance(3.1 * SECOND)
        for (const { wire } of [a, b]) wire.cutOff()
        isCut = true
        await world.clock.advance(8 * SECOND)
        for (const { wire } of [a, b]) wire.restore()
        isCut = false
      }
      await world.clock.advance(MINUTE)
      const started = new Set(runs.map(({ tick }) => tick))
      const isOverrun = (tick: number, ended = runs) =>
        ended.some(({ fromMs, untilMs }) => tick > fromMs && tick <= untilMs && untilMs < now())
      const lost: number[] = []
      for (let tick = wall + SECOND; tick < now() - 2 * SECOND; tick += SECOND)
        if (!started.has(tick) && !isOverrun(tick)) lost.push(tick - wall)
      expect(lost).toEqual([])
      // The end of a run that an outage cut off may not be in the record.
      const recorded = runs.filter(({ isCut }) => !isCut)
      expect([...started].filter((tick) => isOverrun(tick, recorded))).toEqual([])
      expect(started.size).toBeGreaterThan(50)
    })

    test('after a holder died, when the stand-by is granted', async () => {
      const { world, starts, replicas } = await ticking({ policy }, ['A', 'B'])
      await world.clock.advance(2.5 * SECOND)
      const dead = createLocker(replicas[0]?.wire as Replica['wire'], { holder: 'dead', ttlMs: TTL_MS })
      await dead.acquire(NAME)
      replicas[0]?.wire.freeze()
      await world.clock.advance(MINUTE)
      expect(starts).toEqual(seconds(1, starts.length))
      expect(starts.length).toBeGreaterThanOrEqual(62)
    })
  })

  test.each([
    ['skip', [10, 11, 12, 13, 15, 17]],
    ['wait', [10, 11, 12, 13, 14, 15, 16, 17]],
  ] as const)(
    'a tick that falls due while a job runs stays an overrun (overrun: %s)',
    async (overrun, hours) => {
      const world = at(morning)
      const a = world.replica('A')
      let lastsMs = MINUTE
      const hoursRun: number[] = []
      const times = { missed: 'all', overrun, everyMs: HOUR } as const
      await world.schedule(a, times, (run) => {
        hoursRun.push(run.tick.scheduledAt.getUTCHours())
        return world.lasting(lastsMs)(run)
      })
      await world.clock.advance(HOUR)
      a.wire.cutOff()
      await world.clock.advance(3 * HOUR)
      // At 13:30 the ticks of 11, 12 and 13 are due. They take until 14:24, so the tick of 14 is an overrun.
      a.wire.restore()
      lastsMs = 18 * MINUTE
      await world.clock.advance(85 * MINUTE)
      // The tick of 15 takes until 16:10, so that of 16 is an overrun.
      lastsMs = 70 * MINUTE
      await world.clock.advance(30 * MINUTE)
      lastsMs = MINUTE
      await world.clock.advance(105 * MINUTE)
      expect(hoursRun).toEqual(hours)
    },
  )

  test('the starts of a job that throws are one run, on whichever replica', async () => {
    const { world, starts, replicas } = await ticking(
      { policy: 'rerun', maxStarts: 3, rerunAfterMs: 4 * SECOND },
      ['A', 'B'],
    )
    await Promise.all(replicas.map(({ locker }) => locker.close()))
    expect(starts).toEqual([])
    const [c, d] = [world.replica('C'), world.replica('D')]
    const failing = async (run: TickRun<'fenced'>) => {
      starts.push((run.tick.scheduledAt.getTime() - wall) / SECOND)
      await world.lasting(2.5 * SECOND)(run)
      if (run.tick.id.endsWith(':01.000Z')) throw new Error('no paper')
    }
    for (const replica of [c, d])
      await world.schedule(
        replica,
        { ...every, policy: 'rerun', maxStarts: 3, rerunAfterMs: 4 * SECOND },
        failing,
      )
    await world.clock.advance(25 * SECOND)
    // From 1 to 3.5, from 7.5 to 10, from 14 to 16.5: what is due until then is an overrun.
    expect(starts.slice(0, 4)).toEqual([1, 1, 1, 17])
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
    JSON.stringify({ ...good, tick: Number.MAX_SAFE_INTEGER, state: 'started' }),
    JSON.stringify({ ...good, starts: -5, state: 'failed' }),
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

  test('an end that is far ahead is told, because nothing starts before it', async () => {
    const world = at(morning)
    const a = world.replica('A')
    const record = { ...good, tick: tenOClock - HOUR, until: tenOClock + 24 * HOUR }
    await a.locker.withLease(NAME, (lease) => lease.setData(JSON.stringify(record)))
    expect(await world.ticks(a).run(tenOClock)).toBe('left')
    expect(world.errors.map(String)).toEqual([expect.stringContaining('locker.forget(name)')])
  })
})

test('a clock that was a day ahead, and is set back, has lost no tick', async () => {
  const world = at(morning)
  world.clock.stepWall(24 * HOUR)
  await world.schedule(world.replica('A'))
  await world.clock.advance(MINUTE)
  world.clock.stepWall(-24 * HOUR)
  await world.clock.advance(HOUR)
  expect(world.started).toEqual(['10:00 A'])
  expect(await world.record()).toMatchObject({ tick: tenOClock })
})

test('T32 a schedule sleeps for a millisecond or more, however little its clock lacks', async () => {
  const world = at(morning)
  const a = world.replica('A', -0.25)
  const delays: number[] = []
  const clock: typeof a.locker.clock = {
    ...a.locker.clock,
    setTimer: (ms, fire, options) => {
      delays.push(ms)
      return a.locker.clock.setTimer(ms, fire, options)
    },
  }
  await world.schedule({ ...a, locker: overriding(a.locker, { clock }) })
  await world.clock.advance(HOUR)
  expect(world.started).toEqual(['10:00 A'])
  expect(delays.length).toBeGreaterThan(30)
  expect(delays.filter((ms) => ms < 1)).toEqual([])
})

test('a hold of half of the time between two ticks of a cron is accepted, and so is a cron with one time', async () => {
  const { locker } = at(morning).replica('A')
  const soon = new Date(tenOClock).toISOString().slice(0, 19)
  for (const [cron, holdAtLeastMs] of [
    ['*/10 * * * *', 5 * MINUTE],
    [soon, HOUR],
  ] as const)
    await (
      await schedule(
        locker,
        { name: NAME, cron: new Cron(cron, { timezone: 'UTC' }), holdAtLeastMs },
        () => {},
      )
    ).close()
})

test('a replica that looks back does not close the name for the next tick', async () => {
  const world = at(morning)
  const options = { missed: 'last', holdAtLeastMs: 10 * MINUTE } as const
  await world.schedule(world.replica('A'), options)
  await world.clock.advance(89 * MINUTE)
  await world.schedule(world.replica('B'), options)
  await world.clock.advance(HOUR)
  expect(world.started.map((start) => start.slice(0, 5))).toEqual(['10:00', '11:00'])
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
    ['no cron', { cron: 'every day' }, /cron "every day" is refused/],
    ['an empty cron', { cron: '' }, /cron must not be empty/],
    ['a long cron', { cron: '*'.repeat(5_000) }, /cron must have at most/],
    ['61 minutes', { cron: '61 * * * *' }, /cron "61 .*" is refused/],
    ['30 February', { cron: '0 0 30 2 *' }, /no time in the future/],
    ['a date that is over', { cron: '2020-01-01T00:00:00' }, /no time in the future/],
    ['an object', { cron: { next: () => null } }, /cron must be a cron expression, or a Cron/],
    ['a zone that is not there', { cron: '0 3 * * *', timeZone: 'Mars/Base' }, /is refused: .*Mars\/Base/],
    ['a zone without a cron', { everyMs: 1_000, timeZone: 'UTC' }, /timeZone belongs to/],
    ['an unknown option', { everyMs: 1_000, timezone: 'UTC' }, /no option "timezone"/],
    ['an unknown policy', { everyMs: 1_000, policy: 'retry' }, /policy must be one of/],
    ['missed true', { everyMs: 1_000, missed: true }, /missed must be one of/],
    ['maxStarts 0', { everyMs: 1_000, maxStarts: 0 }, /maxStarts must be at least 1/],
    [
      'a hold that reaches the next tick',
      { everyMs: 1_000, holdAtLeastMs: 900 },
      /holdAtLeastMs must be at most half of the time between two ticks, which is 500 at the shortest, not 900/,
    ],
    [
      'a hold that reaches the next tick of a cron',
      { cron: '*/10 * * * *', holdAtLeastMs: 6 * MINUTE },
      /holdAtLeastMs must be at most half of the time between two ticks, which is 300000 at the shortest/,
    ],
    [
      'a hold that reaches the next tick of a cron at some times',
      { cron: '0,5,20 3 * * *', timeZone: 'UTC', holdAtLeastMs: 3 * MINUTE },
      /which is 150000 at the shortest/,
    ],
    ['a TTL in seconds', { everyMs: 1_000, ttlMs: 10 }, /ttlMs must be at least .* 10 s would be 10000/],
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
    const none = [undefined, null, '', 'today', [], true, 5n, {}]
    for (const date of [Number.NaN, 0.5, Number.MAX_SAFE_INTEGER, new Date('never'), ...none])
      expect(() => tickRunner(locker, { name: NAME }, () => {}).run(date as never)).toThrow(/must be a date/)
  })

  test('each error without onError is a warning of the process', async () => {
    const warnings = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    onTestFinished(() => warnings.mockRestore())
    const { locker } = at(morning).replica('A')
    const thrown: unknown[] = [new Error('no paper'), Object.create(null)]
    const ticks = tickRunner(locker, { name: NAME }, () => Promise.reject(thrown.shift()))
    await ticks.run(tenOClock)
    await ticks.run(tenOClock + HOUR)
    const [[first, options] = [], [second] = []] = warnings.mock.calls
    expect(first).toBe('memory: schedule "nightly", tick 2026-11-14T10:00:00.000Z: Error: no paper.')
    expect(options).toMatchObject({
      code: 'HOLDFAST_SCHEDULE',
      detail: expect.stringMatching(/at .*Silence it/s),
    })
    expect(second).toMatch(/tick 2026-11-14T11:00:00.000Z: something that has no text/)
  })

  test('an unfenced locker must be asked for', async () => {
    const { locker } = at(morning).replica('A')
    const info = { ...locker.info, fencing: 'unfenced' as const, name: 'acme' }
    const unfenced = Object.assign(Object.create(locker), { info, fencing: 'unfenced' }) as Locker<'unfenced'>
    const when = { name: NAME, everyMs: 1_000 }
    // @ts-expect-error an unfenced locker must be asked for
    await expect(schedule(unfenced, when, () => {})).rejects.toMatchObject({ code: 'UNSUPPORTED' })
    const allowed = await schedule(unfenced, { ...when, allowUnfenced: true }, () => {})
    await allowed.close()
  })

  test.each([
    ['no date', () => new Date(Number.NaN)],
    ['always the same', () => new Date(tenOClock)],
  ])('T87 a Cron of the user that returns %s ends the schedule, and is told', async (_, later) => {
    const world = at(morning)
    const a = world.replica('A')
    let asked = 0
    const nextRun = () => (++asked === 1 ? new Date(tenOClock) : later())
    await world.schedule(a, { cron: { nextRun } })
    await world.clock.advance(HOUR)
    expect(world.errors).toMatchObject([{ code: 'INVALID_ARGUMENT', argument: 'cron' }])
    expect(a.wire.log.length).toBeLessThan(10)
  })

  test('a Cron of the user has its own zone', async () => {
    const world = at(morning)
    await world.schedule(world.replica('A'), { cron: new Cron('0 12 * * *', { timezone: 'Asia/Tokyo' }) })
    await world.clock.advance(24 * HOUR)
    expect(world.started).toEqual(['03:00 A'])
  })
})
