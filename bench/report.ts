/** The results as text: one table for the terminal and for Markdown, ratios first. */

import { type Machine, machineInWords } from './machine.ts'
import type { Effort, SubjectResult } from './run.ts'

export interface Report {
  readonly machine: Machine
  readonly effort: Effort
  readonly subjects: readonly SubjectResult[]
}

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export function reportInWords({ machine, effort, subjects }: Report): string {
  return [...subjects.map((subject) => subjectInWords(subject)), aboutRun(machine, effort)].join('\n\n')
}

export function reportAsMarkdown({ machine, effort, subjects }: Report): string {
  return [
    ...subjects.map(
      (subject) =>
        `# ${subject.name}\n\nRaw: ${subject.raw}.\n\n` +
        `${markdownTable(pairRows(subject))}\n\n${markdownTable(handOverRows(subject))}`,
    ),
    `${aboutRun(machine, effort)}\n`,
  ].join('\n\n')
}

function subjectInWords(subject: SubjectResult): string {
  return [
    `${subject.name}   raw: ${subject.raw}`,
    '',
    textTable(pairRows(subject)),
    '',
    textTable(handOverRows(subject)),
  ].join('\n')
}

function aboutRun(machine: Machine, { rounds, seconds }: Effort): string {
  return (
    `Medians of ${rounds} interleaved rounds of ${seconds} s each. A pair is an acquire and a release; at 64 at once ` +
    'every one has a name of its own. Only the ratios travel to other machines.\n' +
    `${machineInWords(machine)}.`
  )
}

type Row = readonly string[]

function pairRows({ comparisons }: SubjectResult): Row[] {
  return [
    ['setting', 'at once', 'who', 'to raw', '(range)', 'pairs/s', 'p50 ms', 'p99 ms'],
    ...comparisons.flatMap(({ setting, atOnce, contenders }) =>
      contenders.map(({ name, ratio, ratioLeast, ratioMost, pairsPerSecond, p50Ms, p99Ms }, index) => [
        index === 0 ? setting : '',
        index === 0 ? String(atOnce) : '',
        name,
        index === 0 ? '1' : ratioText(ratio),
        index === 0 ? '' : `(${ratioText(ratioLeast)}–${ratioText(ratioMost)})`,
        number.format(pairsPerSecond),
        millis(p50Ms),
        millis(p99Ms),
      ]),
    ),
  ]
}

function handOverRows({ handOver }: SubjectResult): Row[] {
  return [
    ['hand-over', 'hand-overs/s', 'from one process to another'],
    ...handOver.map(({ processes, waiters, perSecond, crossed }) => [
      `${waiters} want one name, in ${processes === 1 ? 'one process' : `${processes} processes`}`,
      number.format(perSecond),
      processes === 1 ? '' : `${Math.round(crossed * 100)} %`,
    ]),
  ]
}

function ratioText(ratio: number): string {
  return ratio >= 10 ? ratio.toFixed(0) : ratio.toPrecision(2)
}

function millis(ms: number): string {
  return ms >= 10 ? ms.toFixed(1) : ms >= 0.1 ? ms.toFixed(2) : ms.toFixed(4)
}

function isFigure(cell: string): boolean {
  return /^[\d.,]+$/.test(cell)
}

function textTable(rows: readonly Row[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  const figures = widths.map((_, column) => rows.slice(1).some((row) => isFigure(row[column] ?? '')))
  return rows
    .map((row) => {
      const cells = row.map((cell, column) =>
        figures[column] ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0),
      )
      return `  ${cells.join('   ')}`.trimEnd()
    })
    .join('\n')
}

function markdownTable([head = [], ...rows]: readonly Row[]): string {
  const line = (row: Row) => `| ${row.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}
