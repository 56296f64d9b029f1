/** The costs of pairs as tables: the figures of one pair, each with its ratio to the first contender's. */
import { type Versions, verdicts, versionsInWords } from '../against/report.ts'
import type { Verdict } from '../against/statistics.ts'
import { type Machine, machineInWords } from '../machine.ts'
import { markdownTable, type Row, textTable } from '../report.ts'
import { type ComparisonCost, type CostResult, type MeasureResult, measures } from './run.ts'

export interface CostReport {
  readonly machine: Machine
  readonly results: readonly CostResult[]
  /** With --against. */
  readonly versions?: Versions
  readonly verdict?: Verdict
}

const units =
  'client = user + system: CPU time of the client’s process; servers: CPU time of all servers; in commands: the part of it that ' +
  'the server counts for the commands or statements themselves. All times are in µs, sent, received and allocated in bytes.'

export function costInWords({ machine, results, versions, verdict }: CostReport): string {
  return [
    ...(versions === undefined ? [] : [versionsInWords(versions)]),
    ...results.flatMap((result) => [
      `${result.name}   ${firstInWords(result, versions)}`,
      ...result.comparisons.map((comparison) => `${titleOf(comparison)}\n${textTable(rowsOf(comparison))}`),
      aboutRun(result),
    ]),
    `${machineInWords(machine)}.`,
    ...(verdict === undefined ? [] : [`${verdicts[verdict]}.`]),
  ].join('\n\n')
}

export function costAsMarkdown({ machine, results }: CostReport): string {
  return [
    ...results.flatMap((result) => [
      `# What a pair costs: ${result.name}`,
      `${firstInWords(result)}.`,
      ...result.comparisons.flatMap((comparison) => [
        `## ${titleOf(comparison)}`,
        markdownTable(rowsOf(comparison)),
      ]),
      aboutRun(result),
    ]),
    `${machineInWords(machine)}.\n`,
  ].join('\n\n')
}

function firstInWords({ raw }: CostResult, versions?: Versions): string {
  return versions === undefined ? `Raw: ${raw}` : 'In brackets: new/old, with the 95 % interval'
}

function titleOf({ setting, atOnce }: ComparisonCost): string {
  return `${setting}, ${atOnce === 1 ? 'one after another' : `${atOnce} at once`}`
}

function aboutRun({ effort: { rounds, seconds }, remarks }: CostResult): string {
  const about =
    `Costs of one acquire and release: medians of ${rounds} interleaved rounds of ${seconds} s each, every contender in a process ` +
    'of its own. In brackets: the ratio to the first one.'
  return [about, units, ...remarks.map((remark) => `${remark}.`)].join('\n')
}

function rowsOf({ contenders }: ComparisonCost): Row[] {
  const known = measures.filter((measure) => contenders.some(({ costs }) => costs[measure] !== undefined))
  return [
    ['who', ...known],
    ...contenders.map(({ name, costs }, index) => [
      name,
      ...known.map((measure) => cellOf(costs[measure], index === 0)),
    ]),
  ]
}

function cellOf(result: MeasureResult | undefined, isFirst: boolean): string {
  if (result === undefined) return '–'
  const { value, ratio, low, high, verdict } = result
  const figure = value >= 100 ? value.toFixed(0) : value.toFixed(1)
  if (isFirst || ratio === null) return figure
  const interval = low === undefined || high === undefined ? '' : ` ${low.toFixed(2)}–${high.toFixed(2)}`
  const word = verdict === undefined || verdict === 'pass' ? '' : `, ${verdict}`
  return `${figure} (${ratio.toFixed(2)}${interval}${word})`
}
