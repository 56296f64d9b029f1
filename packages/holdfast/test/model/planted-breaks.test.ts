/** A check that notices nothing is worth nothing: breaks are planted, and each must be noticed. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { createFakeClock } from '../../src/testing/fake-clock.ts'
import { lockerBreaks } from './locker/breaks.ts'
import { lockerCommands } from './locker/commands.ts'
import { play as playLockers } from './locker/play.ts'
import { quiesce } from './locker/quiesce.ts'
import { LockerWorld } from './locker/world.ts'
import { engineBreaks } from './spi/breaks.ts'
import { spiCommands } from './spi/commands.ts'
import { Comparison } from './spi/comparison.ts'
import { closeAll, memorySide } from './spi/engines.ts'
import { play as playEngines } from './spi/play.ts'

/** Half of what the real tests run; always the same ones. */
const fixed = { numRuns: 300, seed: 1, endOnFailure: true }

async function compare(
  other: ReturnType<typeof memorySide>,
  clock: ReturnType<typeof createFakeClock>,
  commands: Parameters<typeof playEngines>[1],
) {
  const model = memorySide('the model', clock)
  try {
    await playEngines(new Comparison(clock, [model, other]), commands)
  } finally {
    await closeAll(model, other)
  }
}

describe('the comparison of engines', () => {
  test('finds two that are the same the same', async () => {
    await fc.assert(
      fc.asyncProperty(spiCommands, async (commands) => {
        const clock = createFakeClock()
        await compare(memorySide('the same', clock), clock, commands)
      }),
      fixed,
    )
  })

  for (const { what, plant } of engineBreaks) {
    test(`notices a planted break: ${what}`, async () => {
      const { failed } = await fc.check(
        fc.asyncProperty(spiCommands, async (commands) => {
          const clock = createFakeClock()
          await compare(memorySide('the broken one', clock, plant), clock, commands)
        }),
        fixed,
      )
      assert(failed, 'not noticed')
    })
  }
})

describe('the model of lockers under faults', () => {
  for (const { what, noticedAs, planted } of lockerBreaks) {
    test(`notices a planted break: ${what}`, async () => {
      const { failed, errorInstance, numRuns } = await fc.check(
        fc.asyncProperty(lockerCommands, fc.nat(), async (commands, seed) => {
          const world = new LockerWorld(seed, planted)
          await playLockers(world, commands)
          await quiesce(world)
        }),
        fixed,
      )
      assert(failed, 'not noticed')
      assert.match(String(errorInstance), noticedAs, `after ${numRuns} runs`)
    })
  }
})
