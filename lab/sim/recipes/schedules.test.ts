/** Schedules under outages, crashes and lost messages. More seeds: `npm run sim -- --workload schedules --seeds 5000`. */
import { beforeAll, expect, test } from 'vitest'
import { type BatchResult, runBatch } from '../batch.ts'
import { notCovered } from '../coverage.ts'
import { explain } from '../report.ts'
import { schedulesCoverage } from './schedules.ts'

const SEEDS = 100

let batch: BatchResult

beforeAll(async () => {
  batch = await runBatch({ from: 1, seeds: SEEDS, focus: { workload: 'schedules' } })
}, 300_000)

test(`T97 ${SEEDS} seeds break no rule: with missed 'all' no tick of an outage is lost, and with skip none starts twice`, async () => {
  const [first] = batch.failed
  expect(first === undefined ? '' : await explain(first, 40)).toBe('')
}, 120_000)

test('ticks were late and overrun, and replicas came and died', () => {
  expect(notCovered(batch, schedulesCoverage)).toEqual([])
})
