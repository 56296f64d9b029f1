/** Starts the programs of this folder as processes of their own, straight from the sources. */
import { type ChildProcess, spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface Worker {
  readonly process: ChildProcess
  /** Everything that it has printed so far. */
  readonly output: { text: string }
  /** Resolves when it has printed this. */
  printed(text: string): Promise<void>
  /** When it has ended and all that it printed has been read; rejects if it failed by itself. */
  readonly ended: Promise<string>
}

const flags = ['--disable-warning=ExperimentalWarning']
// Starting costs most; what was compiled once need not be compiled again.
const environment = { ...process.env, NODE_COMPILE_CACHE: join(tmpdir(), 'holdfast-test-cache') }

export function start(program: string, ...args: readonly (string | number)[]): Worker {
  const file = join(import.meta.dirname, program)
  const child = spawn(process.execPath, [...flags, file, ...args.map(String)], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: environment,
  })
  const output = { text: '' }
  let errors = ''
  const listeners = new Set<() => void>()
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.text += text
    for (const listener of listeners) listener()
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text
  })
  const ended = new Promise<string>((resolve, reject) => {
    child.on('close', (code, signal) => {
      if (code === 0 || signal === 'SIGKILL') resolve(output.text)
      else reject(new Error(`${program} ended with ${code ?? signal}: ${errors}`))
    })
  })
  ended.catch(() => {})
  const printed = (text: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (!output.text.includes(text)) return
        listeners.delete(look)
        resolve()
      }
      listeners.add(look)
      ended.then(() => reject(new Error(`${program} never printed ${text}`)), reject)
      look()
    })
  return { process: child, output, printed, ended }
}
