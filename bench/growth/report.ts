/** Cost against size as text: a table for each load. */
import { type Machine, machineInWords } from '../machine.ts'
import { markdownTable, millis, type Row, textTable } from '../report.ts'
import { type GrowthResult, growthOf, type LoadResult, type MeasureResult } from './run.ts'

export interface GrowthReport {
  readonly machine: Machine
  readonly growth: readonly GrowthResult[]
}

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export function growthInWords({ machine, growth }: GrowthReport): string {
  const parts = growth.flatMap((result) => [
    result.name,
    ...result.loads.flatMap((load) => partsOf(load, textTable)),
    aboutRun(result),
  ])
  return [...parts, `${machineInWords(machine)}.`].join('\n\n')
}

export function growthAsMarkdown({ machine, growth }: GrowthReport): string {
  const parts = growth.flatMap((result) => [
    `# ${result.name}: cost against size`,
    `![Lines](growth-${result.name}.svg)`,
    ...result.loads.flatMap((load) => partsOf(load, markdownTable)),
    aboutRun(result),
  ])
  return [...parts, `${machineInWords(machine)}.\n`].join('\n\n')
}

export function aboutRun({ seconds, remarks }: GrowthResult): string {
  return [
    'Growth is the cost at the largest size compared with the smallest.',
    `Cost of a call: median over ${seconds} s of sequential calls; the line below is server CPU per call.`,
    '"At rest" and "watch" cost CPU time of client and servers a second.',
    'With * the answer itself grows.',
    ...remarks.map((remark) => `${remark}.`),
  ].join(' ')
}

function partsOf(load: LoadResult, table: (rows: readonly Row[]) => string): string[] {
  const { name, sizes, problem } = load
  return [
    ...(sizes.length === 0 ? [] : [table(rowsOf(load))]),
    ...(problem === undefined ? [] : [`${name}: ended early, ${problem}`]),
  ]
}

function rowsOf({ name, sizes, measures }: LoadResult): Row[] {
  return [
    [name, ...sizes.map((size) => number.format(size)), 'growth'],
    ...measures.flatMap((measure) => [rowOf(measure), ...serverRow(measure)]),
  ]
}

function rowOf({ name, unit, hasGrowingAnswer, costs, growth }: MeasureResult): Row {
  return [
    `${name}${hasGrowingAnswer ? ' *' : ''}, ${unit}`,
    ...costs.map(({ ms }) => millis(ms)),
    growthText(growth),
  ]
}

function serverRow({ costs }: MeasureResult): Row[] {
  const all = costs.map(({ serverCpuMs }) => serverCpuMs).filter((ms) => ms !== null)
  if (all.length < costs.length || all.length === 0) return []
  return [['  server CPU, ms', ...all.map(millis), growthText(growthOf(all))]]
}

export function growthText(growth: number): string {
  if (!Number.isFinite(growth)) return '–'
  return growth >= 10 ? growth.toFixed(0) : growth.toFixed(1)
}
