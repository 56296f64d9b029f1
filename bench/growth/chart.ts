/** Cost against size as a picture: a panel for each load, both axes logarithmic, so that a flat line is no growth. */
import { margin, pictureOf, round, text, width } from '../chart.ts'
import { type Machine, machineInWords } from '../machine.ts'
import { millis } from '../report.ts'
import { aboutRun, growthText } from './report.ts'
import type { GrowthResult, LoadResult, MeasureResult } from './run.ts'

const left = margin + 60
const right = width - 300
const panelHeight = 150
const labelHeight = 16
const colours = ['#1f6feb', '#d1242f', '#1a7f37', '#9a6700', '#8250df', '#bf3989', '#59636e']
const number = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export function growthChartOf(result: GrowthResult, machine: Machine): string {
  const parts: string[] = []
  let y = margin + 14
  parts.push(text(margin, y, `${result.name}: cost against size`, 'title'))
  y += 20
  parts.push(text(margin, y, 'Flat is better. Both axes are logarithmic.', 'quiet'))
  y += 30
  for (const load of result.loads) {
    parts.push(text(margin, y, load.name, 'panel'), panelOf(load, y + 14))
    y += panelHeight + 60
  }
  const footer = [...aboutRun(result).split(/(?<=\.) /), `${machineInWords(machine)}.`]
  return pictureOf(`Growth of ${result.name}`, parts, y, footer)
}

function panelOf({ sizes, measures }: LoadResult, top: number): string {
  const costs = measures.flatMap((measure) => measure.costs.map(({ ms }) => ms)).filter((ms) => ms > 0)
  if (costs.length === 0) return text(left, top + labelHeight, 'no size was reached', 'quiet')
  const x = scale(Math.min(...sizes), Math.max(...sizes), left, right)
  const y = scale(Math.min(...costs), Math.max(...costs), top + panelHeight, top)
  const bottom = top + panelHeight
  const parts = [
    `<line class="axis" x1="${left}" y1="${bottom}" x2="${right}" y2="${bottom}"/>`,
    `<line class="axis" x1="${left}" y1="${top}" x2="${left}" y2="${bottom}"/>`,
    ...sizes.map((size) => text(x(size) - 8, bottom + 16, number.format(size), 'quiet')),
    ...[Math.min(...costs), Math.max(...costs)].map((ms) => text(margin, y(ms) + 4, millis(ms), 'quiet')),
  ]
  // Labels in the order in which the curves end, and none on top of another.
  const ends = measures.toSorted((a, b) => lastOf(b) - lastOf(a))
  ends.forEach((measure, index) => {
    const colour = colours[measures.indexOf(measure) % colours.length]
    const points = measure.costs.map(({ ms }, at) => `${round(x(sizes[at] ?? 1))},${round(y(ms))}`)
    const label = `${measure.name}${measure.hasGrowingAnswer ? ' *' : ''}, ${measure.unit}: ${growthText(measure.growth)}`
    const labelY = top + 10 + index * labelHeight
    parts.push(
      `<polyline class="curve" stroke="${colour}" points="${points.join(' ')}"/>`,
      `<rect x="${right + 24}" y="${labelY - 8}" width="8" height="8" fill="${colour}"/>`,
      text(right + 38, labelY, label, ''),
    )
  })
  return parts.join('\n')
}

function lastOf({ costs }: MeasureResult): number {
  return costs.at(-1)?.ms ?? 0
}

/** Logarithmic. */
function scale(least: number, most: number, from: number, to: number): (value: number) => number {
  const span = Math.log(most / least)
  return (value) =>
    span === 0 ? from : from + (Math.log(Math.max(value, least) / least) / span) * (to - from)
}
