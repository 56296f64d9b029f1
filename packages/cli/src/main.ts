#!/usr/bin/env node
/** The command `holdfast`. What a command needs is loaded when it is called. */
import { readFileSync } from 'node:fs'
import { Exit, exitCodeOf, messageOf } from './exits.ts'
import { program } from './program.ts'
import { flushed, say, tell } from './terminal.ts'

// Node's own listener prints a warning for `node:sqlite`, and the stack's line with every other.
process.removeAllListeners('warning')
process.on('warning', ({ name, message, code }: Error & { readonly code?: string }) => {
  // Times of the command line have a unit, so nobody takes milliseconds for seconds.
  if (name !== 'ExperimentalWarning' && code !== 'HOLDFAST_TTL') say(message)
})
// The reader of a pipe may go (`holdfast doctor | head -1`). The command goes on, and its own code counts.
process.stdout.on('error', () => {})

interface Asked {
  readonly verbose?: boolean
  readonly busyCode?: number
}

const manifest = new URL('../../package.json', import.meta.url)
const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { readonly version: string }
let asked: Asked = {}

try {
  const exitWith = (code: number) => {
    process.exitCode = code
  }
  const holdfast = program({ version, exitWith })
  holdfast.hook('preAction', (_, command) => {
    asked = command.opts()
  })
  await holdfast.parseAsync()
} catch (error) {
  process.exitCode = exitCodeOf(error, asked.busyCode)
  const message = error instanceof Exit && error.message === '' ? '' : messageOf(error)
  if (message !== '') say(message)
  if (asked.verbose && error instanceof Error) for (const line of (error.stack ?? '').split('\n')) tell(line)
}
await flushed()
// Connections of a client that nobody could close must not keep a command that is over.
process.exit()
