/** Every broken backend is noticed by the rules of the suite and by the models that the bank names for it. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { backendCases } from '../../packages/holdfast/src/testing/describe-backend.ts'
import { createFakeClock, type FakeClock } from '../../packages/holdfast/src/testing/fake-clock.ts'
import { lockerCommands } from '../../packages/holdfast/test/model/locker/commands.ts'
import { play as playLockers } from '../../packages/holdfast/test/model/locker/play.ts'
import { quiesce } from '../../packages/holdfast/test/model/locker/quiesce.ts'
import { LockerWorld } from '../../packages/holdfast/test/model/locker/world.ts'
import { spiCommands } from '../../packages/holdfast/test/model/spi/commands.ts'
import { Comparison } from '../../packages/holdfast/test/model/spi/comparison.ts'
import { closeAll, memorySide } from '../../packages/holdfast/test/model/spi/engines.ts'
import { play as playEngines } from '../../packages/holdfast/test/model/spi/play.ts'
import { backendBugs } from './backends/index.ts'
import { bugs } from './bank.ts'

/** Half of what the real tests run; always the same ones. */
const fixed = { numRuns: 300, seed: 1, endOnFailure: true }
const cases = new Map(backendCases().map((each) => [each.rule, each]))
const rulesOf = ({ suite = '' }: { readonly suite?: string }) =>
  suite.split(' ').filter((word) => cases.has(word))

describe('the conformance suite', () => {
  for (const { what, createWorld, foundBy } of backendBugs) {
    if (createWorld === undefined || foundBy.suite === undefined) continue
    test(`${foundBy.suite} notice: ${what}`, async () => {
      for (const rule of foundBy.suite?.split(' ') ?? []) {
        const world = await createWorld()
        try {
          const error: unknown = await cases
            .get(rule)
            ?.run(world)
            .then(
              () => undefined,
              (error: unknown) => error,
            )
          assert(error instanceof Error, `${rule} did not notice`)
          assert.doesNotMatch(error.message, /falsy value/, `${rule} does not print what it found`)
        } finally {
          await world.close()
        }
      }
    })
  }

  const noticing = new Set(bugs.flatMap(({ foundBy }) => rulesOf(foundBy)))

  test('every rule has a bug that turns it red', () => {
    assert.deepEqual([...noticing].sort(), [...cases.keys()].sort())
  })

  test('every guarantee and trap that a title names has a bug that turns one of its cases red', () => {
    const numbersOf = (rules: Iterable<string>) =>
      new Set([...rules].flatMap((rule) => cases.get(rule)?.title.match(/\b[GT]\d+\b/g) ?? []))
    const shown = numbersOf(noticing)
    assert.deepEqual(
      [...numbersOf(cases.keys())].filter((number) => !shown.has(number)),
      [],
    )
  })
})

describe('the comparison of engines', () => {
  /** Plays random calls on the model and on another engine, which must answer alike. */
  const comparison = (other: (clock: FakeClock) => ReturnType<typeof memorySide>) =>
    fc.asyncProperty(spiCommands, async (commands) => {
      const clock = createFakeClock()
      const sides = [memorySide('the model', clock), other(clock)] as const
      try {
        await playEngines(new Comparison(clock, sides), commands)
      } finally {
        await closeAll(...sides)
      }
    })

  test('finds two that are the same the same', async () => {
    await fc.assert(
      comparison((clock) => memorySide('the same', clock)),
      fixed,
    )
  })

  for (const { what, wrap, foundBy } of backendBugs) {
    if (!foundBy.engineModel) continue
    test(`notices: ${what}`, async () => {
      const { failed } = await fc.check(
        comparison((clock) => memorySide('the broken one', clock, wrap?.())),
        fixed,
      )
      assert(failed, 'not noticed')
    })
  }
})

describe('the model of lockers under faults', () => {
  for (const { what, wrap, inModel, foundBy } of backendBugs) {
    const { lockerModel } = foundBy
    if (lockerModel === undefined) continue
    test(`notices: ${what}`, async () => {
      const { failed, errorInstance, numRuns } = await fc.check(
        fc.asyncProperty(lockerCommands, fc.nat(), async (commands, seed) => {
          const world = new LockerWorld(seed, inModel ?? { [lockerModel.at ?? 'engine']: wrap?.() })
          await playLockers(world, commands)
          await quiesce(world)
        }),
        fixed,
      )
      assert(failed, 'not noticed')
      assert.match(String(errorInstance), lockerModel.as, `after ${numRuns} runs`)
    })
  }
})
