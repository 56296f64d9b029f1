/** The election in the simulation, as part of `npm test`. More seeds: `npm run sim -- --workload election --seeds 5000`. */
import { beforeAll, describe, expect, test } from 'vitest'
import { type BatchResult, runBatch } from '../batch.ts'
import { notCovered } from '../coverage.ts'
import { explain } from '../report.ts'
import { runSeed } from '../run.ts'
import { electionCoverage } from './election.ts'

const SEEDS = 300

const rules: readonly (readonly [rule: string, title: string])[] = [
  ['T53', 'T53 leadership is not given up while its term runs'],
  ['one-term', 'a client never runs two terms at once, and tokens increase from term to term'],
  ['G3', 'G3 a term is told when its lease is lost, and a stale one is unhealthy'],
  ['G5', 'G5 what a deposed leader sends is refused by the guard'],
  ['leader', 'only leaders are shown, in their order, each with its own value'],
  ['G10', 'G10 when the faults are over there is a leader, and observers know it'],
  ['T32', 'T32 T87 nothing runs hot'],
]

// An observer that had looked between two lists ignored all events after that.
test.each([10849, 11330])('seed %d, which broke something once, breaks nothing', async (seed) => {
  const { violation } = await runSeed(seed, { workload: 'election' })
  expect(violation).toBeNull()
})

describe(`the election, ${SEEDS} seeds`, () => {
  let batch: BatchResult

  beforeAll(async () => {
    batch = await runBatch({ from: 1, seeds: SEEDS, historyEvery: 10, focus: { workload: 'election' } })
  }, 600_000)

  test.each(rules)('%s: %s', async (rule) => {
    const [first] = batch.failed.filter(({ violation }) => violation?.rule === rule)
    expect(first === undefined ? '' : await explain(first, 40)).toBe('')
  })

  test('nothing else breaks', () => {
    const known = rules.map(([rule]) => rule)
    expect(batch.failed.filter(({ violation }) => !known.includes(violation?.rule ?? ''))).toEqual([])
  })

  test('every path was taken, and the unguarded control lost updates', () => {
    expect(notCovered(batch, electionCoverage)).toEqual([])
  })
})
