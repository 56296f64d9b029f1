/** Text for a terminal or a pipe. What others have stored is escaped before it is shown. */
import { constants, fstatSync, openSync } from 'node:fs'
import { Socket } from 'node:net'
import { withoutPasswords } from './passwords.ts'

// Control characters, and those that turn the direction of what follows.
// biome-ignore lint/suspicious/noControlCharactersInRegex: escaping control characters is the purpose
const unprintable = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

export function printable(text: string): string {
  return text
    .toWellFormed()
    .replace(unprintable, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

export function out(line: string): void {
  process.stdout.write(`${line}\n`)
}

/** One line of JSON. What is escaped can only stand in its strings, so it says the same. */
export function outJson(value: unknown): void {
  out(printable(JSON.stringify(value)))
}

/**
 * Stderr. The command shares the pipe that we were started with, and whether a write waits for the reader is a property of an
 * opened pipe, not of a process. So we open it once more for us alone: a reader that stalls holds up neither our timers nor, in
 * other ways than before, the command.
 */
const stderr = openStderr()
// Its reader may go while the command still runs.
stderr.on('error', () => {})

function openStderr(): NodeJS.WritableStream {
  try {
    const flags = constants.O_WRONLY | constants.O_NONBLOCK
    if (fstatSync(2).isFIFO()) return new Socket({ fd: openSync('/dev/fd/2', flags), readable: false })
  } catch {
    // It belongs to another user, or its reader has gone.
  }
  return process.stderr
}

/** One line on stderr, with the name of the program in front. */
export function say(message: string): void {
  tell(`holdfast: ${message}`)
}

export function tell(line: string): void {
  stderr.write(`${printable(withoutPasswords(line))}\n`)
}

/** When everything has been written. */
export async function flushed(): Promise<void> {
  for (const stream of [stderr, process.stdout])
    await new Promise<void>((resolve) => stream.write('', () => resolve()))
}

export function isTerminal(): boolean {
  return process.stdout.isTTY === true
}

function hasColor(): boolean {
  return isTerminal() && !process.env.NO_COLOR && process.env.TERM !== 'dumb'
}

/** Clears a terminal, and goes to its first line. */
export const clear = '\u001b[2J\u001b[H'

export function bold(text: string): string {
  return hasColor() ? `\u001b[1m${text}\u001b[22m` : text
}

/** Rows with a head, in columns as wide as they need to be. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const shown = rows.map((row) => row.map(printable))
  const widths = head.map((title, column) =>
    Math.max(title.length, ...shown.map((row) => row[column]?.length ?? 0)),
  )
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd()
  return [bold(line(head)), ...shown.map(line)].join('\n')
}
