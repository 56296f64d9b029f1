import { expect, test } from 'vitest'
import { run } from '../short-run.ts'
import type { AgainstReport } from './report.ts'
import { judge } from './statistics.ts'

interface Ended {
  readonly code?: number
  readonly stdout: string
}

test('a short run against a commit measures both, and its verdict is its exit code', async () => {
  const ended: Promise<Ended> = run('memory', '--against', 'HEAD', '--seconds', '0.005', '--json')
  // With rounds as short as these any verdict may come out.
  const { code = 0, stdout } = await ended.catch((error: Ended) => error)
  const report = JSON.parse(stdout) as AgainstReport
  expect({ pass: 0, fail: 1, void: 3 }[report.verdict]).toBe(code)
  expect(report.old.id).toBe(report.new.id)

  expect(
    report.subjects.map(({ name, workloads }) => [name, ...workloads.map((workload) => workload.name)]),
  ).toEqual([
    [
      'memory',
      'in this process, holdfast, one after another',
      'in this process, holdfast, 64 at once',
      'hand-over, 32 waiters in one process',
    ],
  ])
  for (const { rounds, ratio, verdict } of report.subjects.flatMap(({ workloads }) => workloads)) {
    expect(rounds).toHaveLength(15)
    for (const { newPerSecond, oldPerSecond } of rounds) {
      expect(newPerSecond).toBeGreaterThan(0)
      expect(oldPerSecond).toBeGreaterThan(0)
    }
    const found = judge(rounds.map(({ newPerSecond, oldPerSecond }) => newPerSecond / oldPerSecond))
    expect({ ratio, verdict }).toEqual({ ratio: found.ratio, verdict: found.verdict })
  }
})

test('a commit that does not exist is named', async () => {
  await expect(run('memory', '--against', 'no-such-branch')).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringContaining('There is no commit no-such-branch here.'),
  })
})
