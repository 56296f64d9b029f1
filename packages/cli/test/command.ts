/** Runs the built command as a user would: as a process of its own, with an environment of its own. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type AnyLocker, type LockerOptions, openLocker } from 'holdfast'
import { waitFor } from 'holdfast-lab/servers'
import { onTestFinished } from 'vitest'

const main = fileURLToPath(new URL('../../holdfast/dist/cli/main.js', import.meta.url))

/** The same as `npx holdfast`, for a command line of a shell. */
export const holdfast = `'${process.execPath}' '${main}'`

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface Started {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
  kill(signal: NodeJS.Signals): void
}

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string>>
  /** Default: `holdfast` itself. */
  readonly through?: readonly string[]
  readonly input?: boolean
}

export function start(
  args: readonly string[],
  { env = {}, through = [], input = false }: CommandOptions = {},
): Started {
  // The settings of the tests are not the program's.
  const { PATH = '', HOME = '', NODE_COMPILE_CACHE: cache = '' } = process.env
  const [file = '', ...rest] = [...through, process.execPath, main, ...args]
  const child = spawn(file, rest, {
    env: { PATH, HOME, NODE_COMPILE_CACHE: cache, ...env },
    stdio: [input ? 'pipe' : 'ignore', 'pipe', 'pipe'],
  })
  let stdout = ''
  let stderr = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => resolve({ code, stdout, stderr }))
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  return { process: child, ended, kill: (signal) => void child.kill(signal) }
}

export function run(args: readonly string[], options?: CommandOptions): Promise<Ended> {
  return start(args, options).ended
}

/** For `through`: the command on a terminal of its own. What follows on the command line is for nobody. */
export function onTerminal(command: string): readonly string[] {
  return ['sh', '-c', 'exec script --quiet --return --command "$0" /dev/null', command]
}

/** The command of a `run`: a script, whose first line may be `LOUD`. */
export function shell(script: string): readonly string[] {
  return ['--', 'sh', '-c', script]
}

/** Writes the id of the command into the trace. */
export const LOUD = 'echo "pid $$" >>"$TRACE"'
/** So that a trap is run at once. */
export const FOREVER = 'while :; do sleep 0.02; done'
/** A script that runs until a signal. It writes when it gets SIGUSR1, which holdfast passes on once it has finished the start. */
export const PASSED = `trap 'echo passed >>"$TRACE"' USR1; ${LOUD}; ${FOREVER}`

/** An engine of its own on a file, and a trace, as environment of a command; and clients, closed when the test is over. */
export function newRig() {
  const trace = new Trace()
  const url = `sqlite:${join(newFolder(), 'locks.db')}`
  const env: Record<string, string> = { HOLDFAST_URL: url, TRACE: trace.path }
  const locker = async (at = url, options: LockerOptions = {}): Promise<AnyLocker> => {
    const opened = await openLocker(at, options)
    onTestFinished(() => opened.close())
    return opened
  }
  return { env, trace, locker }
}

/** Listeners for signals that the test adds to this process are removed when it is over. */
export function forgetListeners(): void {
  const before = new Map(
    process.eventNames().map((name) => [name, process.listeners(name as NodeJS.Signals)]),
  )
  onTestFinished(() => {
    for (const name of process.eventNames() as NodeJS.Signals[])
      for (const listener of process.listeners(name))
        if (!before.get(name)?.includes(listener)) process.removeListener(name, listener as () => void)
  })
}

/** Removed when the test is over. */
export function newFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-cli-')))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** A file for `--sign-key-file`, and its key. */
export function newKey() {
  const file = join(newFolder(), 'key')
  const secret = Buffer.alloc(32, 7)
  writeFileSync(file, `k1 ${secret.toString('base64')}\n`)
  return { file, key: { id: 'k1', secret } }
}

/** A file of a command under test, and what it has written there so far. */
export class Trace {
  readonly path = join(newFolder(), 'trace')

  get lines(): readonly string[] {
    return existsSync(this.path) ? readFileSync(this.path, 'utf8').split('\n').slice(0, -1) : []
  }

  async has(line: string): Promise<void> {
    await waitFor(`${line} in the trace`, async () => this.lines.includes(line) || null)
  }

  /** The id of a process that the command has written. */
  async pid(label: string): Promise<number> {
    const found = await waitFor(
      label,
      async () => this.lines.find((line) => line.startsWith(`${label} `)) ?? null,
    )
    return Number(found.split(' ')[1])
  }
}

export function childrenOf(pid: number): number[] {
  const { stdout } = spawnSync('ps', ['-o', 'pid=', '--ppid', String(pid)], { encoding: 'utf8' })
  return (stdout.match(/\d+/g) ?? []).map(Number)
}

/** Gone, or a zombie whose parent does not look. */
export async function gone(pid: number): Promise<void> {
  await waitFor(`the end of ${pid}`, async () => !isRunning(pid) || null)
}

export function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2))
  } catch {
    return false
  }
}
