/** The results as text: one table for the terminal and for Markdown, ratios first. */

import { type Machine, machineInWords } from './machine.ts'
import type { SubjectResult } from './run.ts'

export interface Report {
  readonly machine: Machine
  readonly subjects: readonly SubjectResult[]
}

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export function reportInWords({ machine, subjects }: Report): string {
  return [...subjects.map((subject) => subjectInWords(subject)), `${machineInWords(machine)}.`].join('\n\n')
}

export function reportAsMarkdown({ machine, subjects }: Report): string {
  return [...subjects.map((subject) => subjectAsMarkdown(subject)), `${machineInWords(machine)}.\n`].join(
    '\n\n',
  )
}

function subjectInWords(subject: SubjectResult): string {
  const { name, raw } = subject
  return [
    `${name}   raw: ${raw}`,
    ...tablesOf(subject).map((rows) => textTable(rows)),
    aboutRun(subject),
  ].join('\n\n')
}

function subjectAsMarkdown(subject: SubjectResult): string {
  const { name, raw } = subject
  return [
    `# ${name}`,
    `Raw: ${raw}.`,
    `![Ratios as bars](${name}.svg)`,
    ...tablesOf(subject).map((rows) => markdownTable(rows)),
    aboutRun(subject),
  ].join('\n\n')
}

function tablesOf(subject: SubjectResult): Row[][] {
  return [pairRows(subject), contestRows(subject), handOverRows(subject)].filter((rows) => rows.length > 1)
}

function aboutRun({ effort: { rounds, seconds }, contest, remarks }: SubjectResult): string {
  const aboutContest = contest && [
    `Hand-over: ${contest.waiters} want one name and hold it for ${contest.holdMs} ms; whoever had it comes back when another has ` +
      `had it. ${contest.floor}. Medians of ${contest.contestants[0]?.rounds.length} interleaved rounds of ` +
      `${contest.seconds} s each; p50 and p99 are from the call of release to the next one's having it; everybody waits as by ` +
      'default.',
  ]
  return [
    `Medians of ${rounds} interleaved rounds of ${seconds} s each. A pair is an acquire and a release; when many are at once, ` +
      'every one has a name of its own. Only the ratios travel to other machines.',
    ...(aboutContest ?? []),
    ...(remarks.length === 0 ? [] : [`${remarks.join('. ')}.`]),
  ].join('\n')
}

export type Row = readonly string[]

function pairRows({ comparisons }: SubjectResult): Row[] {
  return [
    [
      'setting',
      'at once',
      'who',
      `to ${comparisons[0]?.contenders[0]?.name}`,
      '(range)',
      'pairs/s',
      'p50 ms',
      'p99 ms',
    ],
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

function contestRows({ contest }: SubjectResult): Row[] {
  return [
    ['hand-over', 'to floor', '(range)', 'hand-overs/s', 'p50 ms', 'p99 ms', 'gave up/s', 'served'],
    ...(contest?.contestants ?? []).map((contestant, index) => [
      contestant.name,
      index === 0 ? '1' : ratioText(contestant.ratio),
      index === 0 ? '' : `(${ratioText(contestant.ratioLeast)}–${ratioText(contestant.ratioMost)})`,
      number.format(contestant.perSecond),
      millis(contestant.p50Ms),
      millis(contestant.p99Ms),
      number.format(contestant.gaveUpPerSecond),
      `${contestant.served} of ${contest?.waiters}`,
    ]),
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

export function millis(ms: number | null): string {
  if (ms === null) return '–'
  return ms >= 10 ? ms.toFixed(1) : ms >= 0.1 ? ms.toFixed(2) : ms.toFixed(4)
}

function isFigure(cell: string): boolean {
  return /^[\d.,]+$/.test(cell)
}

export function textTable(rows: readonly Row[]): string {
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

export function markdownTable([head = [], ...rows]: readonly Row[]): string {
  const line = (row: Row) => `| ${row.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}
