import { expect, test } from 'vitest'
import { median } from './measure.ts'
import { run, shortRun } from './short-run.ts'

test('a short run measures everybody, and its ratios come from its own rounds', async () => {
  const { machine, subjects } = await shortRun('sqlite', 'memory', '--seconds', '0.03', '--rounds', '2')
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

test('the help names every backend that can be measured', async () => {
  const { stdout } = await run('--help')
  expect(stdout).toMatch(/Backends: .*memory.*redis.*redlock.*sqlite/)
})
