/** Every bug that is planted in the sources is caught by the checks that the bank names for it. */
import { readFileSync } from 'node:fs'
import { beforeAll, describe, expect, test } from 'vitest'
import { wanted } from '../servers/index.ts'
import type { SourceBug } from './bug.ts'
import { type Caught, catchAll, caughtBugs, failedCases, runUnits } from './catching.ts'
import { found } from './found.ts'
import { comparable, trackRecord } from './record.ts'
import { sourceBugs } from './sources/index.ts'
import type { UnitRun } from './units.config.ts'

let results: ReadonlyMap<string, Caught>
let units: readonly UnitRun[]

beforeAll(async () => {
  units = await runUnits()
  results = await catchAll()
}, 600_000)

const bySimulation = caughtBugs.filter(({ foundBy }) => foundBy.simulation)
test.each(bySimulation)('$id within $foundBy.simulation.seeds seeds: $what', ({ id, foundBy }) => {
  expect(results.get(id)?.seeds, results.get(id)?.message).not.toBeNull()
  const { rule } = foundBy.simulation ?? {}
  if (rule !== undefined) expect(results.get(id)?.rule).toBe(rule)
})

describe('the conformance suite', () => {
  test('fails nothing without a bug', async () => {
    expect(await failedCases({ edits: [] })).toEqual([])
  })

  test.each(caughtBugs.filter(({ foundBy }) => foundBy.suite))(
    '$id is noticed by $foundBy.suite: $what',
    ({ id }) => {
      expect(results.get(id)?.seeds, results.get(id)?.message).not.toBeNull()
    },
  )
})

describe('unit tests', () => {
  test('are green without a bug', () => {
    const runs = units.filter(({ bug }) => bug.startsWith('none'))
    expect(runs.flatMap(({ red }) => red)).toEqual([])
    for (const { passed } of runs) expect(passed).toBeGreaterThan(0)
    expect(runs.reduce((sum, { passed }) => sum + passed, 0)).toBeGreaterThan(50)
  })

  const isRun = ({ foundBy: { units } }: SourceBug) =>
    units !== undefined && (units.on === undefined || wanted(units.on))
  test.each(sourceBugs.filter(isRun))(
    '$id turns a test of $foundBy.units.name red: $what',
    ({ id, foundBy }) => {
      const red = units.flatMap((run) => (run.bug === id ? run.red : []))
      const about = new RegExp(`\\b${foundBy.units?.name}\\b`)
      expect(
        red.filter((name) => about.test(name)),
        `red: ${JSON.stringify(red)}`,
      ).not.toEqual([])
    },
  )
})

test('TRACK_RECORD.md is what the bank says (npm run bugs -- --write)', () => {
  const written = readFileSync(new URL('../TRACK_RECORD.md', import.meta.url), 'utf8')
  expect(comparable(written)).toBe(comparable(trackRecord(sourceBugs, results, found)))
})
