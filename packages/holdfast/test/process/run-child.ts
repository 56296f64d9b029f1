/** Runs a program of `children/` in a process of its own: what a process does by itself only a process can show. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

export interface Ended {
  /** Null if a signal ended it. */
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** The lines that it printed. */
  readonly lines: readonly string[]
  readonly errors: string
}

export interface Child {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
  /** Resolves when the child has printed this line; rejects if it ends before. */
  printed(line: string): Promise<void>
}

/** `name` is a file of `children/`; it and the child end with the test at the latest. */
export function runChild(name: string, ...given: string[]): Child {
  const path = join(import.meta.dirname, 'children', name)
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', path, ...given], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let output = ''
  let errors = ''
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
  const lines = () => output.split('\n').slice(0, -1)
  let hasEnded = false
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      hasEnded = true
      resolve({ code, signal, lines: lines(), errors })
      tell()
    })
  })
  const printed = (line: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (lines().includes(line)) resolve()
        else if (hasEnded) reject(new Error(`it ended without "${line}": ${output}${errors}`))
        else return
        listeners.delete(look)
      }
      listeners.add(look)
      look()
    })
  return { process: child, ended, printed }
}
