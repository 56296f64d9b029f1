/** The time line: one lane for each worker, drawn from what was reported. A pure function of the events. */
import type { RoundEvent } from './events.ts'
import type { Paint, Style } from './terminal.ts'
import { pauseIn, type Turn, turnsIn, waitingIn } from './turns.ts'

export interface TimelineOptions {
  readonly workers: readonly string[]
  readonly width: number
  readonly paint: Paint
  /** With colours blocks are drawn by their background, without them with characters. */
  readonly coloured: boolean
  /** Until when it is drawn; what is not over by then goes on to the edge. */
  readonly untilMs: number
  /** Entries that were acknowledged and are not in the ledger. */
  readonly lost: readonly string[]
}

export const styles = {
  workers: [
    ['bgBlue', 'whiteBright', 'bold'],
    ['bgMagenta', 'whiteBright', 'bold'],
    ['bgCyan', 'black', 'bold'],
  ],
  frozen: ['bgYellow', 'black'],
  alarm: ['bgRed', 'whiteBright', 'bold'],
  waiting: ['dim'],
} as const satisfies Record<string, Style | readonly Style[]>

const indent = 2
const labelWidth = 6
/** So that a live drawing does not begin with blocks as wide as the screen. */
const leastSpanMs = 3_000

export function drawTimeline(events: readonly RoundEvent[], options: TimelineOptions): string[] {
  const { workers, width, paint, untilMs } = options
  const startMs = events[0]?.atMs ?? untilMs
  const columns = width - indent - labelWidth - 2
  const spanMs = Math.max((untilMs - startMs) * 1.02, leastSpanMs)
  const row = () => new Row(columns, startMs, spanMs)

  const turns = turnsIn(events)
  const lanes = workers.map((worker, index) => {
    const lane = row()
    const waitingSinceMs = waitingIn(events, worker)
    if (waitingSinceMs !== undefined) drawWait(lane, waitingSinceMs, untilMs)
    const own = turns.filter((turn) => turn.worker === worker)
    for (const turn of own) drawWait(lane, turn.waitedFromMs, turn.fromMs)
    for (const turn of own) drawTurn(lane, turn, styles.workers[index] ?? 'inverse', options)
    return lane
  })
  const labelled = [row(), row(), ...lanes, row()]
  const [axis, marks, bottom] = [labelled[0], labelled[1], labelled.at(-1)]
  if (axis) drawAxis(axis, spanMs)
  if (marks) drawMarks(marks, turns)
  if (bottom) drawOverlap(bottom, turns, untilMs)
  return labelled.map((each, index) => {
    const label = paint('bold', (workers[index - 2] ?? '').padEnd(labelWidth))
    return (' '.repeat(indent) + label + each.text(paint)).trimEnd()
  })
}

/** One line of cells over the time. */
class Row {
  readonly #cells: ({ readonly text: string; readonly style: Style | undefined } | undefined)[]
  readonly #startMs: number
  readonly #spanMs: number

  constructor(columns: number, startMs: number, spanMs: number) {
    this.#cells = new Array(columns)
    this.#startMs = startMs
    this.#spanMs = spanMs
  }

  get columns(): number {
    return this.#cells.length
  }

  columnOf(atMs: number): number {
    return Math.floor(((atMs - this.#startMs) / this.#spanMs) * this.columns)
  }

  put(column: number, text: string, style?: Style): void {
    for (const [index, character] of [...text].entries()) {
      if (column + index < this.columns) this.#cells[column + index] = { text: character, style }
    }
  }

  fill(from: number, to: number, character: string, style: Style): void {
    this.put(from, character.repeat(Math.max(0, to - from)), style)
  }

  text(paint: Paint): string {
    return Array.from(this.#cells, (cell) =>
      cell === undefined ? ' ' : cell.style === undefined ? cell.text : paint(cell.style, cell.text),
    ).join('')
  }
}

function drawWait(lane: Row, fromMs: number, untilMs: number): void {
  lane.fill(lane.columnOf(fromMs), lane.columnOf(untilMs), '·', [...styles.waiting])
}

function drawTurn(lane: Row, turn: Turn, style: Style, { coloured, untilMs, lost }: TimelineOptions): void {
  const start = lane.columnOf(turn.fromMs)
  // However short the turn was, there is room for its token and for how it ended.
  const end = Math.max(lane.columnOf(turn.untilMs ?? untilMs), start + turn.token.length + 1)
  lane.fill(start, end, coloured ? ' ' : '█', style)
  if (turn.stopped !== undefined) {
    const until = lane.columnOf(turn.stopped.untilMs ?? untilMs)
    lane.fill(lane.columnOf(turn.stopped.fromMs), until, coloured ? ' ' : '░', [...styles.frozen])
  }
  lane.put(start, turn.token, style)
  const isLost = turn.entry !== undefined && lost.includes(turn.entry.id)
  if (turn.outcome === 'refused') lane.put(end - 1, '✗', [...styles.alarm])
  else if (turn.outcome === 'written')
    lane.put(end - 1, isLost ? '⊘' : '✓', isLost ? [...styles.alarm] : style)
}

function drawAxis(axis: Row, spanMs: number): void {
  for (let second = 0; second * 1_000 < spanMs; second++) {
    const column = Math.floor(((second * 1_000) / spanMs) * axis.columns)
    if (column + 4 < axis.columns) axis.put(column, `${second} s`, 'dim')
  }
}

function drawMarks(marks: Row, turns: readonly Turn[]): void {
  const { frozen, takeOver } = pauseIn(turns)
  const moments = [frozen?.stopped?.fromMs, takeOver?.fromMs, frozen?.stopped?.untilMs]
  for (const [index, atMs] of moments.entries()) {
    if (atMs !== undefined) marks.put(marks.columnOf(atMs), '①②③'.charAt(index), 'bold')
  }
}

/** Where two workers believed at the same time that the lease was theirs. */
function drawOverlap(row: Row, turns: readonly Turn[], untilMs: number): void {
  const { frozen, takeOver } = pauseIn(turns)
  if (frozen === undefined || takeOver === undefined) return
  const from = row.columnOf(takeOver.fromMs)
  const to = row.columnOf(frozen.stopped?.untilMs ?? untilMs)
  if (to <= from) return
  const label = 'two believe that they hold '
  row.put(Math.max(0, from - label.length), label, 'yellow')
  row.put(from, `└${'─'.repeat(to - from - 1)}┘`, 'yellow')
}
