import { wanted } from 'holdfast-lab/servers'
import { describe, expect, test } from 'vitest'
import { run } from '../short-run.ts'
import { growthChartOf } from './chart.ts'
import { loads } from './loads.ts'
import { type GrowthReport, growthAsMarkdown, growthInWords } from './report.ts'
import { type GrowthResult, growthOf } from './run.ts'

async function shortGrowth(...names: string[]): Promise<GrowthReport> {
  const { stdout } = await run('growth', ...names, '--sizes', '200,400', '--seconds', '0.005', '--json')
  return JSON.parse(stdout) as GrowthReport
}

function expectComplete({ loads: measured }: GrowthResult): void {
  expect(measured.map(({ name }) => name)).toEqual(loads.map(({ name }) => name))
  for (const { name, sizes, measures, problem } of measured) {
    expect(problem).toBeUndefined()
    expect(sizes).toEqual(name === 'watchers' ? [2, 4] : [200, 400])
    for (const { costs, growth } of measures) {
      expect(costs).toHaveLength(2)
      expect(growth).toBe(growthOf(costs.map(({ ms }) => ms)))
    }
  }
}

test('a short run measures every load at every size, and draws it', async () => {
  const report = await shortGrowth('memory', 'sqlite')
  expect(report.growth.map(({ name }) => name)).toEqual(['memory', 'sqlite'])
  for (const result of report.growth) {
    expectComplete(result)
    const chart = growthChartOf(result, report.machine)
    for (const { name } of loads) expect(chart).toContain(`>${name}</text>`)
    expect(chart).not.toMatch(/NaN|undefined|Infinity/)
  }
})

describe.runIf(wanted('redis'))('the growth of redis', () => {
  test('a short run measures every load at every size, with the CPU time of the server', async () => {
    const [result] = (await shortGrowth('redis')).growth
    if (result === undefined) throw new Error('nothing was measured')
    expectComplete(result)
    const pairs = result.loads.map(({ measures }) => measures.find(({ unit }) => unit === 'ms'))
    for (const pair of pairs)
      for (const { serverCpuMs } of pair?.costs ?? [])
        if (process.platform === 'linux') expect(serverCpuMs).toBeGreaterThan(0)
  })
})

test('growth is the largest size to the smallest, and there is none for one size', () => {
  expect(growthOf([2, 100, 10])).toBe(5)
  expect(growthOf([2])).toBeNaN()
})

test('a load that ended early says why, and shows what was reached', () => {
  const cost = (ms: number) => ({ ms, serverCpuMs: null })
  const measure = { name: 'inspect', unit: 'ms', hasGrowingAnswer: true } as const
  const growth: GrowthResult = {
    name: 'paper',
    remarks: ['One sheet'],
    seconds: 1,
    loads: [
      {
        name: 'names',
        sizes: [10, 1_000],
        measures: [{ ...measure, costs: [cost(1), cost(30)], growth: 30 }],
      },
      {
        name: 'waiters',
        sizes: [10],
        measures: [{ ...measure, costs: [cost(2)], growth: growthOf([2]) }],
        problem: 'the pencil broke',
      },
      { name: 'watchers', sizes: [], measures: [], problem: 'there are no eyes' },
    ],
  }
  const machine = {
    cpu: '',
    cores: 1,
    memoryGiB: 1,
    platform: '',
    fileSystem: '',
    node: '',
    sqlite: '',
    date: '',
    command: '',
  }
  const report = { machine, growth: [growth] }
  expect(growthInWords(report)).toMatch(/names +10 +1,000 +growth\n +inspect \*, ms +1\.00 +30\.0 +30\n/)
  expect(growthInWords(report)).toMatch(/inspect \*, ms +2\.00 +–\n\nwaiters: ended early, the pencil broke/)
  expect(growthAsMarkdown(report)).toContain('watchers: ended early, there are no eyes')
  expect(growthChartOf(growth, machine)).not.toMatch(/NaN|undefined|Infinity/)
})
