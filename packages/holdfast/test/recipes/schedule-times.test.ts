/** On memory and the fake clock: skewed replicas, the rows of the guide's tables, both days of daylight saving. */
import { describe, expect, test } from 'vitest'
import type { TickRun } from '../../src/recipes/schedule.ts'
import { at, HOUR, MINUTE, morning, tenOClock, type World } from './schedule-world.ts'

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
    expect(String(world.errors[0])).toMatch(/which is in \d+ s by the clock.*forget/)
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

  test.each([1, 3])(
    'a job that throws and runs again is one run for them (%i replicas)',
    async (replicas) => {
      const world = at(morning)
      const failsOnce = async (run: TickRun<'fenced'>) => {
        if (run.tick.start > 1 || world.started.length > 1) return
        await world.lasting(1.5 * HOUR)(run)
        throw new Error('no paper')
      }
      for (const name of ['A', 'B', 'C'].slice(0, replicas))
        await world.schedule(world.replica(name), { policy: 'rerun' }, failsOnce)
      await world.clock.advance(3 * HOUR)
      expect(world.started.map((each) => each.replace(/ [ABC]/, ''))).toEqual(['10:00', '10:00 #2', '12:00'])
    },
  )
})

describe('daylight saving', () => {
  const zones = [
    ['Europe/Berlin', '2026-03-28T22:30:00Z', '30 2 * * *', ['01:00']],
    ['Europe/Berlin', '2026-10-24T22:10:00Z', '30 2 * * *', ['00:30']],
    ['America/New_York', '2026-03-08T03:30:00Z', '30 2 * * *', ['07:00']],
    ['America/New_York', '2026-11-01T02:30:00Z', '30 1 * * *', ['05:30']],
    ['Australia/Lord_Howe', '2026-10-03T12:10:00Z', '15 2 * * *', ['15:30']],
    ['Australia/Lord_Howe', '2026-04-04T11:10:00Z', '45 1 * * *', ['14:45']],
  ] as const
  test.each(zones)(
    'in %s, from %s, a daily job (%s %s) runs once',
    async (timeZone, from, cron, expected) => {
      const world = at(from)
      for (const [name, skewMs] of Object.entries({ A: 0, B: 4 * MINUTE, C: -6 * MINUTE }))
        await world.schedule(world.replica(name, skewMs), { cron, timeZone })
      await world.clock.advance(8 * HOUR)
      expect(world.started.map((each) => each.slice(0, 5))).toEqual(expected)
    },
  )

  test.each(zones)('in %s, from %s, an hourly job runs every hour', async (timeZone, from) => {
    const world = at(from)
    await world.schedule(world.replica('A'), { cron: '0 * * * *', timeZone })
    await world.clock.advance(8 * HOUR)
    // Lord Howe moves its clock by half an hour: the local full hour comes after half an hour, or after one and a half.
    expect(world.started.length).toBeGreaterThanOrEqual(7)
    expect(new Set(world.started.map((each) => each.slice(0, 5))).size).toBe(world.started.length)
    if (timeZone !== 'Australia/Lord_Howe') expect(world.started).toHaveLength(8)
  })
})
