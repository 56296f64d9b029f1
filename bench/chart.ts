/**
 * The results as a picture, as an SVG without scripts: bars are ratios to the measure of their group, with the range of the
 * rounds. It brings its own background, for light and for dark pages.
 */
import { type Machine, machineInWords } from './machine.ts'
import type { SubjectResult } from './run.ts'
import { isOurs } from './subject.ts'

interface Bar {
  readonly who: string
  /** Which group of rows it stands in. */
  readonly group: string
  readonly isMeasure: boolean
  readonly ratio: number
  readonly least: number
  readonly most: number
  readonly perSecond: number
}

interface Column {
  readonly title: string
  readonly bars: readonly Bar[]
}

interface Panel {
  readonly title: string
  readonly measure: string
  readonly columns: readonly Column[]
}

export const width = 980
export const margin = 24
const labelWidth = 212
const gap = 18
const rowHeight = 19
const barHeight = 11
/** At the right of each column, for the figures. */
const figureWidth = 62

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

const style = `
  text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 } .panel { font-size: 14px; font-weight: 600 }
  .group { font-weight: 600 } .quiet, .figure { fill: #59636e; font-size: 11px } .figure { text-anchor: end }
  .own { font-weight: 600 }
  .card { fill: #ffffff; stroke: #d1d9e0 } .line { stroke: #1f2328; stroke-dasharray: 3 3; stroke-width: 1 }
  .axis { stroke: #d1d9e0 } .ours { fill: #1f6feb } .theirs { fill: #9aa4af } .measure { fill: none; stroke: #59636e }
  .range { stroke: #1f2328; stroke-width: 1.3 } .curve { fill: none; stroke-width: 1.8 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet, .figure { fill: #9da7b3 } .card { fill: #0d1117; stroke: #30363d }
    .line, .range { stroke: #e6edf3 } .axis { stroke: #30363d } .ours { fill: #58a6ff } .theirs { fill: #6e7681 }
    .measure { stroke: #9da7b3 }
  }`

export function chartOf(subject: SubjectResult, machine: Machine): string {
  const parts: string[] = []
  let y = margin + 14
  parts.push(text(margin, y, subject.name, 'title'))
  y += 20
  parts.push(text(margin, y, 'Longer is better. The thin line is the range of the rounds.', 'quiet'))
  y += 30
  for (const panel of panelsOf(subject)) {
    const drawn = drawPanel(panel, y)
    parts.push(drawn.svg)
    y = drawn.bottom + 34
  }
  const { rounds, seconds } = subject.effort
  const title = `Benchmark of ${subject.name}`
  return pictureOf(title, parts, y, [
    `Medians of ${rounds} interleaved rounds of ${seconds} s. Only the ratios travel to other machines.`,
    ...subject.remarks.map((remark) => `${remark}.`),
    `${machineInWords(machine)}.`,
  ])
}

/** The whole picture: these parts down to `bottom`, and the sentences below them. */
export function pictureOf(
  title: string,
  parts: readonly string[],
  bottom: number,
  footer: readonly string[],
): string {
  const lines = joined(footer).map((line, index) => text(margin, bottom + index * 15, line, 'quiet'))
  const height = bottom + lines.length * 15 + margin - 15
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    `<title>${escaped(title)}</title>`,
    `<style>${style}\n</style>`,
    `<rect class="card" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>`,
    ...parts,
    ...lines,
    '</svg>\n',
  ].join('\n')
}

function panelsOf({ comparisons, contest }: SubjectResult): Panel[] {
  const measure = comparisons[0]?.contenders[0]?.name ?? ''
  const counts = [...new Set(comparisons.map(({ atOnce }) => atOnce))].sort((a, b) => a - b)
  const pairs: Panel = {
    title: 'Pairs of acquire and release',
    measure: `to ${measure}`,
    columns: counts.map((count) => ({
      title: count === 1 ? 'one after another' : `${count} at once`,
      bars: comparisons
        .filter(({ atOnce }) => atOnce === count)
        .flatMap(({ setting, contenders }) =>
          contenders.map((contender, index) => barOf(contender, setting, index, contender.pairsPerSecond)),
        ),
    })),
  }
  if (contest === undefined) return [pairs]
  const bars = contest.contestants.map((each, index) => barOf(each, '', index, each.perSecond))
  const title = `Hand-over: ${contest.waiters} want one name, and hold it for ${contest.holdMs} ms`
  const measured = `to ${contest.contestants[0]?.name}`
  return [pairs, { title, measure: measured, columns: [{ title: 'hand-overs a second', bars }] }]
}

interface Measured {
  readonly name: string
  readonly ratio: number
  readonly ratioLeast: number
  readonly ratioMost: number
}

function barOf(measured: Measured, group: string, index: number, perSecond: number): Bar {
  const { name: who, ratio, ratioLeast: least, ratioMost: most } = measured
  return { who, group, isMeasure: index === 0, ratio, least, most, perSecond }
}

/** One row for everybody, one column for each setting; not everybody is in every column. */
function drawPanel(panel: Panel, top: number): { svg: string; bottom: number } {
  const parts = [text(margin, top, `${panel.title}, ratio ${panel.measure}`, 'panel')]
  const rows = rowsOf(panel)
  const first = top + 34
  const bottom = first + rows.length * rowHeight
  const columnWidth =
    (width - 2 * margin - labelWidth - gap * (panel.columns.length - 1)) / panel.columns.length

  rows.forEach(({ group, who }, index) => {
    const y = first + index * rowHeight + barHeight
    if (who === null) parts.push(text(margin, y, group, 'group'))
    else parts.push(text(margin + 8, y, who, isOurs(who) ? 'own' : ''))
  })
  panel.columns.forEach((column, index) => {
    const left = margin + labelWidth + index * (columnWidth + gap)
    parts.push(drawColumn(column, rows, { left, top: first, bottom, width: columnWidth }))
  })
  return { svg: parts.join('\n'), bottom }
}

interface Row {
  readonly group: string
  /** Null: the head of a group. */
  readonly who: string | null
}

function rowsOf({ columns }: Panel): Row[] {
  const groups = new Map<string, Set<string>>()
  for (const { group, who } of columns.flatMap(({ bars }) => bars)) {
    const members = groups.get(group) ?? new Set()
    groups.set(group, members.add(who))
  }
  return [...groups].flatMap(([group, members]) => [
    ...(group === '' ? [] : [{ group, who: null }]),
    ...Array.from(members, (who) => ({ group, who })),
  ])
}

interface Area {
  readonly left: number
  readonly top: number
  readonly bottom: number
  readonly width: number
}

function drawColumn({ title, bars }: Column, rows: readonly Row[], area: Area): string {
  const { left, top, bottom } = area
  const most = Math.max(1, ...bars.map((bar) => bar.most).filter(Number.isFinite))
  const x = (ratio: number) => left + (Math.max(0, ratio) / most) * (area.width - figureWidth)
  const parts = [
    text(left, top - 8, title, 'quiet'),
    `<line class="axis" x1="${round(left)}" y1="${top}" x2="${round(left)}" y2="${bottom}"/>`,
  ]
  for (const bar of bars) {
    const row = rows.findIndex(({ group, who }) => group === bar.group && who === bar.who)
    const y = top + row * rowHeight
    if (Number.isFinite(bar.ratio)) parts.push(drawBar(bar, x, { ...area, top: y }))
  }
  parts.push(`<line class="line" x1="${round(x(1))}" y1="${top - 4}" x2="${round(x(1))}" y2="${bottom}"/>`)
  return parts.join('\n')
}

function drawBar(bar: Bar, x: (ratio: number) => number, { left, top, width: columnWidth }: Area): string {
  const kind = bar.isMeasure ? 'measure' : isOurs(bar.who) ? 'ours' : 'theirs'
  const middle = top + barHeight / 2 + 1.5
  const figure = bar.isMeasure ? `${number.format(bar.perSecond)}/s` : ratioText(bar.ratio)
  const spread = `<line class="range" x1="${round(x(bar.least))}" y1="${middle}" x2="${round(x(bar.most))}" y2="${middle}"/>`
  return [
    `<rect class="${kind}" x="${round(left)}" y="${top + 1.5}" width="${round(x(bar.ratio) - left)}" height="${barHeight}">`,
    `<title>${escaped(`${bar.who}: ${ratioText(bar.ratio)}, ${number.format(bar.perSecond)} a second`)}</title></rect>`,
    ...(bar.isMeasure ? [] : [spread]),
    text(left + columnWidth, top + barHeight, figure, 'figure'),
  ].join('')
}

function ratioText(ratio: number): string {
  return ratio >= 10 ? ratio.toFixed(0) : ratio >= 0.01 || ratio === 0 ? ratio.toFixed(2) : ratio.toFixed(3)
}

/** Sentences, as many in a line as fit. */
function joined(sentences: readonly string[]): string[] {
  const lines: string[] = []
  for (const sentence of sentences) {
    const last = lines.at(-1)
    if (last !== undefined && last.length + sentence.length < 155)
      lines[lines.length - 1] = `${last} ${sentence}`
    else lines.push(sentence)
  }
  return lines
}

export function text(x: number, y: number, words: string, kind: string): string {
  const styled = kind === '' ? '' : ` class="${kind}"`
  return `<text${styled} x="${round(x)}" y="${round(y)}">${escaped(words)}</text>`
}

function escaped(words: string): string {
  return words.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

export function round(value: number): number {
  return Math.round(value * 10) / 10
}
