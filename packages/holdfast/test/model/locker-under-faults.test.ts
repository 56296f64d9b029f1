import assert from 'node:assert/strict'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, test } from 'vitest'
import { lockerCommands } from './locker/commands.ts'
import { play } from './locker/play.ts'
import { quiesce } from './locker/quiesce.ts'
import { LockerWorld } from './locker/world.ts'
import { lockerRegressions } from './regressions.ts'
import { Runs } from './runs.ts'

const RUNS = 600

describe('model: lockers under faults', () => {
  const unhandled: unknown[] = []
  const note = (reason: unknown) => void unhandled.push(reason)
  beforeEach(() => void process.on('unhandledRejection', note))
  afterEach(() => void process.off('unhandledRejection', note))

  test('G1 G2 G3 G4 G6 G7 G10 G11 G13 hold whatever callers, machines and networks do', {
    timeout: 300_000,
  }, async () => {
    const runs = new Runs('lockers over a faulty memory engine')
    await fc.assert(
      fc.asyncProperty(lockerCommands, fc.nat(), async (commands, seed) => {
        const world = new LockerWorld(seed)
        await play(world, commands, runs)
        await quiesce(world)
        assert.deepEqual(unhandled.splice(0), [], 'G11 a rejection that is not handled')
      }),
      {
        numRuns: RUNS,
        seed: runs.seed,
        examples: lockerRegressions.map(([commands, seed]) => [commands, seed]),
      },
    )
    runs.expectAtLeast({ runs: RUNS, perRun: 30, ofEachKind: 100 })
  })
})
