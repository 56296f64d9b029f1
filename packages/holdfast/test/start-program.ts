/** Runs a program straight from the sources in a process of its own: what a process does only a process can show. */
import { type ChildProcess, spawn } from 'node:child_process'
import { onTestFinished } from 'vitest'

export interface Ended {
  /** Null if a signal ended it. */
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** The lines that it printed; a last one that was cut off is left out. */
  readonly lines: readonly string[]
  readonly errors: string
}

export interface Program {
  readonly process: ChildProcess
  /** When it has ended and all that it printed has been read. */
  readonly ended: Promise<Ended>
  /** Resolves when it has printed this line, or any; rejects if it ends before. */
  printed(line?: string): Promise<void>
}

/** It ends with the test at the latest. */
export function startProgram(path: string, ...given: readonly (string | number)[]): Program {
  const args = ['--disable-warning=ExperimentalWarning', path, ...given.map(String)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  let output = ''
  let errors = ''
  let hasEnded = false
  const lines = () => output.split('\n').slice(0, -1)
  const listeners = new Set<() => void>()
  const tell = () => {
    for (const listener of listeners) listener()
  }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
    tell()
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text
  })
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      hasEnded = true
      resolve({ code, signal, lines: lines(), errors })
      tell()
    })
  })
  const printed = (line?: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (line === undefined ? lines().length > 0 : lines().includes(line)) resolve()
        else if (hasEnded) reject(new Error(`it ended without "${line}": ${output}${errors}`))
        else return
        listeners.delete(look)
      }
      listeners.add(look)
      look()
    })
  return { process: child, ended, printed }
}
