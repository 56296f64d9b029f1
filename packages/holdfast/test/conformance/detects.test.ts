/**
 * The suite can fail: every rule has a planted break that turns it red. A break names the rules that are about it;
 * others may turn red as well.
 */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import { backendCases, type World } from '../../src/testing/describe-backend.ts'
import { breaks } from './breaks/index.ts'

const cases = new Map(backendCases().map((each) => [each.rule, each]))

async function run(rule: string, world: World): Promise<void> {
  await cases.get(rule)?.run(world)
}

describe('planted breaks', () => {
  for (const { what, red, createWorld } of breaks) {
    test(`${red.join(' ')} notice: ${what}`, async () => {
      for (const rule of red) {
        const world = await createWorld()
        try {
          const error: unknown = await run(rule, world).then(
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

  test('every rule has a break that turns it red', () => {
    const noticing = new Set(breaks.flatMap(({ red }) => red))
    assert.deepEqual([...noticing].sort(), [...cases.keys()].sort())
  })

  test('every guarantee and trap that a title names has a break that turns one of its cases red', () => {
    const numbersOf = (rules: Iterable<string>) =>
      new Set([...rules].flatMap((rule) => cases.get(rule)?.title.match(/\b[GT]\d+\b/g) ?? []))
    const shown = numbersOf(breaks.flatMap(({ red }) => red))
    assert.deepEqual(
      [...numbersOf(cases.keys())].filter((number) => !shown.has(number)),
      [],
    )
  })
})
