import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { median } from './measure.ts'
import type { Report } from './report.ts'

const run = (...options: string[]) =>
  promisify(execFile)(process.execPath, [
    '--disable-warning=ExperimentalWarning',
    join(import.meta.dirname, 'main.ts'),
    ...options,
  ])

test('a short run measures everybody, and its ratios come from its own rounds', async () => {
  const { stdout } = await run('sqlite', 'memory', '--seconds', '0.03', '--rounds', '2', '--json')
  const { machine, subjects } = JSON.parse(stdout) as Report
  expect(machine.node).toBe(process.version)
  expect(subjects.map(({ name }) => name)).toEqual(['sqlite', 'memory'])

  for (const { comparisons, handOver } of subjects) {
    expect(new Set(comparisons.map(({ atOnce }) => atOnce))).toEqual(new Set([1, 64]))
    for (const { contenders } of comparisons) {
      expect(contenders.map(({ name }) => name)).toEqual(['raw', 'holdfast'])
      const raw = contenders[0]?.rounds ?? []
      for (const { rounds, ratio, p50Ms, p99Ms } of contenders) {
        expect(rounds).toHaveLength(2)
        const ratios = rounds.map((round, index) => round.pairsPerSecond / (raw[index]?.pairsPerSecond ?? 0))
        expect(ratio).toBeCloseTo(median(ratios), 10)
        expect(p50Ms).toBeGreaterThan(0)
        expect(p99Ms).toBeGreaterThanOrEqual(p50Ms)
      }
    }
    for (const { perSecond } of handOver) expect(perSecond).toBeGreaterThan(0)
  }
  expect(subjects.map(({ handOver }) => handOver.map(({ processes }) => processes))).toEqual([[1, 2], [1]])
})

test('a backend that does not exist is named, and so are those that do', async () => {
  await expect(run('paper')).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/There is no paper; there are: .*memory.*sqlite/),
  })
})
