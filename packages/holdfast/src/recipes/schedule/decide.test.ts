import { describe, expect, test } from 'vitest'
import { type Asked, decide, earlierRuns, type Rules } from './decide.ts'
import type { TickRecord } from './record.ts'

const rules: Rules = { policy: 'skip', missed: 'all', overrun: 'skip', maxStarts: 3, maxMissed: 100 }
const everyTen = (afterMs: number) => (Math.floor(afterMs / 10) + 1) * 10
const asked = (tick: number): Asked => ({ tick, isOnTime: true, next: everyTen })
const record = (part: Partial<TickRecord>): TickRecord => ({
  tick: 100,
  state: 'done',
  starts: 1,
  token: '1',
  since: 100,
  until: 105,
  earlier: [],
  setAside: [],
  ...part,
})

/** Those that start, if each ends before the next is asked for, and its run has no length. */
function startedUntil(tick: number, first: TickRecord): number[] {
  const started: number[] = []
  let last = first
  for (;;) {
    const decision = decide(last, asked(tick), rules)
    if (decision.kind !== 'start') return started
    started.push(decision.tick)
    last = { ...last, tick: decision.tick }
  }
}

describe('an overrun', () => {
  test('T97 begins after the moment in which a run begins, and not with it', () => {
    // The tick of 130 became due in the very millisecond in which the run of 110 began.
    expect(startedUntil(150, record({ tick: 110, since: 130, until: 140 }))).toEqual([120, 130, 150])
  })

  test('is known of earlier runs as well', () => {
    const earlier = [[115, 125]] as const
    expect(startedUntil(150, record({ since: 135, until: 145, earlier }))).toEqual([110, 130, 150])
  })

  test('T97 is none while a runner is dead: nothing says when its run ended', () => {
    expect(startedUntil(130, record({ state: 'started', until: null }))).toEqual([110, 120, 130])
  })
})

describe('earlier runs', () => {
  test('are one if no tick lies between them, and apart otherwise', () => {
    const joined = record({ tick: 110, since: 128, until: 138, earlier: [[112, 127]] })
    expect(earlierRuns(joined, asked(130), 120)).toEqual([[112, 138]])
    const apart = record({ tick: 110, since: 131, until: 138, earlier: [[112, 127]] })
    expect(earlierRuns(apart, asked(130), 120)).toEqual([
      [112, 127],
      [131, 138],
    ])
    // In the very millisecond in which the second began.
    expect(earlierRuns({ ...apart, since: 130 }, asked(130), 120)).toHaveLength(2)
    // A look back asks for an old tick, however long it has waited for the lease.
    expect(earlierRuns(apart, asked(120), 120)).toHaveLength(2)
  })

  test('are forgotten when they can have no more overruns', () => {
    expect(earlierRuns(undefined, asked(100), 100)).toEqual([])
    expect(earlierRuns(record({}), asked(110), 110)).toEqual([])
    const before = record({
      since: 155,
      until: 158,
      earlier: [
        [112, 128],
        [131, 145],
      ],
    })
    expect(earlierRuns(before, asked(160), 130)).toEqual([
      [131, 145],
      [155, 158],
    ])
  })

  test('T97 have no part of a runner that died', () => {
    const dead = record({ state: 'started', since: 116, until: null, earlier: [[90, 115]] })
    expect(earlierRuns(dead, asked(130), 110)).toEqual([[90, 115]])
  })

  test('of ticks that another scheduler calls for are judged by the latest call', () => {
    const call = (tick: number): Asked => ({ tick, isOnTime: true })
    const before = record({ since: 125, until: 135, earlier: [[100, 115]] })
    expect(earlierRuns(before, call(130), 100)).toEqual([[100, 135]])
    expect(earlierRuns(before, call(120), 100)).toHaveLength(2)
  })
})
