/** Partitions under crashes, pauses and lost messages. `npm run sim -- --workload partitions` runs more seeds. */
import { beforeAll, expect, test } from 'vitest'
import { type BatchResult, runBatch } from '../batch.ts'
import { explain } from '../report.ts'

const SEEDS = 160

/** Events that must have happened at least so often, or the seeds show nothing. 800: eight hundred times in all seeds together. */
const wanted: Readonly<Record<string, number>> = {
  'member joined': 800,
  'partition assigned': 2_000,
  'partition moved': 500,
  'partition closed': 500,
  'partition lost': 200,
  'partitions shared': 40,
  'fault crash-client': 40,
  'fault pause': 40,
  'fault partition': 40,
  'fault loss': 40,
  'guard refused': 100,
  'lost update control': 20,
}

let batch: BatchResult

beforeAll(async () => {
  batch = await runBatch({ from: 1, seeds: SEEDS, focus: { workload: 'partitions' }, historyEvery: 40 })
})

test(`${SEEDS} seeds break no rule: one member for each partition, its work has stopped before it moves, and all are shared in the end`, async () => {
  const [first] = batch.failed
  expect(first === undefined ? '' : await explain(first, 40)).toBe('')
})

test('members joined, left and died, partitions moved, and the unguarded control lost updates', () => {
  const missed = Object.entries(wanted).filter(([what, least]) => (batch.counts[what] ?? 0) < least)
  expect(missed.map(([what]) => `${what}: ${batch.counts[what] ?? 0}`)).toEqual([])
})
