/** The findings of `--against`, as a table and a sentence. */
import { type Machine, machineInWords } from '../machine.ts'
import { type Row, textTable } from '../report.ts'
import type { Commit } from './checkout.ts'
import type { AgainstResult } from './run.ts'
import { leastRatio, type Verdict, widest } from './statistics.ts'

/** The two versions that are compared. */
export interface Versions {
  readonly new: Commit & { readonly hasChanges: boolean }
  readonly old: Commit
}

export interface AgainstReport extends Versions {
  readonly machine: Machine
  readonly subjects: readonly AgainstResult[]
  readonly verdict: Verdict
}

export const verdicts: Record<Verdict, string> = {
  pass: 'pass',
  fail: 'fail: slower',
  void: 'void: too noisy',
}

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export function againstInWords(report: AgainstReport): string {
  const { machine, subjects, verdict } = report
  return [
    versionsInWords(report),
    ...subjects.map(subjectInWords),
    `${machineInWords(machine)}.`,
    `${verdicts[verdict]}. A workload passes when the median of its ratios new/old is at least ${leastRatio}; it is void when ` +
      `its 95 % interval reaches further than ${widest * 100} % from the median.`,
  ].join('\n\n')
}

export function versionsInWords({ new: here, old }: Versions): string {
  return `new: ${commitInWords(here)}${here.hasChanges ? ', with changes that are not committed' : ''}\nold: ${commitInWords(old)}`
}

function commitInWords({ id, title }: Commit): string {
  return `${id.slice(0, 9)} ${title}`
}

/** There is none when the old one did nothing in the time. */
function ratioText(ratio: number): string {
  return Number.isFinite(ratio) ? ratio.toFixed(3) : '?'
}

function subjectInWords({ name, workloads, remarks, effort }: AgainstResult): string {
  const rows: Row[] = [
    ['workload', 'new/old', '95 % interval', 'new/s', 'old/s', 'verdict'],
    ...workloads.map((workload) => [
      workload.name,
      ratioText(workload.ratio),
      `${ratioText(workload.low)}–${ratioText(workload.high)}`,
      number.format(workload.newPerSecond),
      number.format(workload.oldPerSecond),
      verdicts[workload.verdict],
    ]),
  ]
  const about =
    `Medians of ${effort.rounds} interleaved rounds of ${effort.seconds} s each; the interval is the exact one of the ` +
    'median, from order statistics.'
  return [name, textTable(rows), [about, ...remarks.map((remark) => `${remark}.`)].join('\n')].join('\n\n')
}
