/** The terminal: colours where they are wanted, the width, and a part of the screen that can be drawn again. */
import { styleText } from 'node:util'

export type Style = Parameters<typeof styleText>[0]
export type Paint = (style: Style, text: string) => string

/** Node's own rules: a terminal that knows colours, unless NO_COLOR says otherwise. */
const coloured = process.stdout.isTTY === true && process.stdout.hasColors()

export const paint: Paint = (style, text) =>
  coloured ? styleText(style, text, { validateStream: false }) : text

export const isColoured = coloured
/** A terminal in which the cursor can go back over the whole time line. */
const isLive = process.stdout.isTTY === true && process.env.TERM !== 'dumb' && process.stdout.rows > 12

export function terminalWidth(): number {
  return Math.max(60, Math.min(process.stdout.columns ?? 100, 120))
}

/** Breaks text at spaces; the lines after the first are indented by `hanging`. */
export function wrap(text: string, width: number, hanging = ''): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`
    if (longer.length > width && line !== '') {
      lines.push(line)
      line = hanging + word
    } else {
      line = longer
    }
  }
  return [...lines, line]
}

/** Draws lines over the ones that it drew before. Does nothing where the output is no terminal. */
export class LiveArea {
  #height = 0

  draw(lines: readonly string[]): void {
    if (!isLive) return
    // The cursor is hidden only while it moves: an interrupted program must not leave it hidden.
    const up = this.#height > 0 ? `\x1b[${this.#height}A` : ''
    const body = lines.map((line) => `${line}\x1b[K\n`).join('')
    process.stdout.write(`\x1b[?25l${up}${body}\x1b[J\x1b[?25h`)
    this.#height = lines.length
  }

  clear(): void {
    if (isLive && this.#height > 0) process.stdout.write(`\x1b[${this.#height}A\x1b[J`)
    this.#height = 0
  }
}
