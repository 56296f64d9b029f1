/** A process of its own that runs a piece of code, for tests that end it without warning. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'

export interface Program {
  readonly process: ChildProcess
  /** Resolves when it has said the word; rejects if it ends before. */
  said(word: string): Promise<void>
  /** The groups of the first line that matches. */
  matched(pattern: RegExp): Promise<string[]>
  /** SIGKILL, and waits for its end. */
  kill(): Promise<void>
}

/** In `code`, `load(path)` imports a file of the package and `say(word)` tells this process something. */
export async function startProgram(code: string): Promise<Program> {
  const root = new URL('../../', import.meta.url).href
  const prelude = `
    const load = (path) => import(new URL(path, ${JSON.stringify(root)}).href)
    const say = (word) => process.stdout.write(word + '\\n')\n`
  const child = spawn(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', prelude + code],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
      cwd: new URL(root),
    },
  )
  let heard = ''
  const waiting = new Set<() => void>()
  const look = () => {
    for (const each of waiting) each()
  }
  child.stdout?.on('data', (data: Buffer) => {
    heard += data.toString()
    look()
  })
  child.on('exit', look)
  const matched = (pattern: RegExp) =>
    new Promise<string[]>((resolve, reject) => {
      const each = () => {
        const match = heard
          .split('\n')
          .map((line) => pattern.exec(line))
          .find((found) => found !== null)
        const isOver = child.exitCode !== null || child.signalCode !== null
        if (match == null && !isOver) return
        waiting.delete(each)
        if (match != null) resolve(match.slice(1))
        else reject(new Error(`the program ended before it said ${pattern}; it said: ${heard}`))
      }
      waiting.add(each)
      each()
    })
  return {
    process: child,
    matched,
    async said(word) {
      await matched(new RegExp(`^${word}$`))
    },
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}
