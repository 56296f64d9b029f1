/** Text for a terminal or a pipe. What others have stored is escaped before it is shown. */
import fs from 'node:fs'
import { promisify } from 'node:util'
import { withoutPasswords } from './passwords.ts'
import { pause } from './pause.ts'

const STDERR = 2
const AGAIN_MS = 20
const write = promisify(fs.write)

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

/** One line on stderr, with the name of the program in front. */
export function say(message: string): void {
  tell(`holdfast: ${message}`)
}

/**
 * The command shares stderr with us. To open it as a stream would change for both of us what a write does when the reader stalls, and
 * then ours would keep the timers waiting, that of SIGKILL too. So each write waits in a thread, one after the other.
 */
let told = Promise.resolve()

export function tell(line: string): void {
  const text = Buffer.from(`${printable(withoutPasswords(line))}\n`)
  // A reader that has gone does not hear why the command ends.
  told = told.then(() => writeAll(text)).catch(() => {})
}

async function writeAll(text: Buffer): Promise<void> {
  for (let rest = text; rest.length > 0; )
    try {
      rest = rest.subarray((await write(STDERR, rest)).bytesWritten)
    } catch (error) {
      // Another program that has it does not want to wait, so neither may we.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error
      await pause((await import('holdfast')).systemClock, AGAIN_MS)
    }
}

/** When everything has been written. */
export async function flushed(): Promise<void> {
  await told
  await new Promise<void>((resolve) => process.stdout.write('', () => resolve()))
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
