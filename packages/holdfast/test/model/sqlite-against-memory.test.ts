import { rmSync } from 'node:fs'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import { spiRegressions } from './regressions.ts'
import { Runs } from './runs.ts'
import { spiCommands } from './spi/commands.ts'
import { Comparison } from './spi/comparison.ts'
import { closeAll, makeFolder, memorySide, sqliteSide } from './spi/engines.ts'
import { play } from './spi/play.ts'

const RUNS = 600

describe('model: sqlite against memory', () => {
  let folder: string
  beforeAll(() => {
    folder = makeFolder()
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('G1 G2 G7 G8 G13 sqlite answers like the reference model', { timeout: 900_000 }, async () => {
    const runs = new Runs('sqlite against memory')
    await fc.assert(
      fc.asyncProperty(spiCommands, async (commands) => {
        const clock = createFakeClock()
        const sides = [memorySide('memory', clock), sqliteSide('sqlite', clock, folder)] as const
        try {
          await play(new Comparison(clock, sides), commands, runs)
        } finally {
          await closeAll(...sides)
        }
      }),
      { numRuns: RUNS, seed: runs.seed, examples: spiRegressions.map((commands) => [commands]) },
    )
    runs.expectAtLeast({ runs: RUNS, perRun: 30, ofEachKind: 100 })
  })
})
