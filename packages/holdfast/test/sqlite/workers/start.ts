/** Starts the programs of this folder as processes of their own. */
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { startProgram } from '../../start-program.ts'

export interface Worker {
  readonly process: ChildProcess
  printed(line?: string): Promise<void>
  /** The lines that it printed until its end; rejects if it failed by itself. */
  readonly ended: Promise<readonly string[]>
}

export function start(program: string, ...args: readonly (string | number)[]): Worker {
  const started = startProgram(join(import.meta.dirname, program), ...args)
  const ended = started.ended.then(({ code, signal, lines, errors }) => {
    if (code === 0 || signal === 'SIGKILL') return lines
    throw new Error(`${program} ended with ${code ?? signal}: ${errors}`)
  })
  ended.catch(() => {})
  return { ...started, ended }
}
