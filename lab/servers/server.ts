// A server as tests, lab and bench see it: an ordinary process with a private folder, which they may break.
//
//   starting ──ready──▶ running ──pause──▶ paused ──resume──▶ running
//   running | paused ──kill | crash──▶ down ──restart──▶ running      same data, same ports
//   any ──stop──▶ gone                                                 folder removed, ports given back

import { type ChildProcess, spawn } from 'node:child_process'
import { chownSync, closeSync, openSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { host, releasePort } from './ports.ts'
import { killTree, pauseTree, resumeTree, signal } from './processes.ts'
import { currentRun, removeFolder } from './run.ts'
import { GivenUp, waitFor } from './wait.ts'

export interface Server extends AsyncDisposable {
  /** For messages: `redis`, `etcd-2`. */
  readonly name: string
  readonly host: string
  /** The port for clients. */
  readonly port: number
  readonly url: string
  /** Of the process that runs now, or ran last. */
  readonly pid: number
  readonly folder: string
  /** Everything that it has written to its output since it was first started. */
  log(): string
  /** SIGSTOP for all of its processes; resolves when they stand still. */
  pause(): Promise<void>
  /** SIGCONT. */
  resume(): Promise<void>
  /** SIGKILL for all of its processes at once, as in a power cut. The data stays. */
  kill(): Promise<void>
  /** Starts it again on the same data and ports; one that runs is first asked to end in its own orderly way. */
  restart(): Promise<void>
  /** Ends it and removes its folder. */
  stop(): Promise<void>
}

export interface Definition {
  readonly name: string
  readonly url: string
  readonly port: number
  readonly otherPorts?: readonly number[]
  readonly folder: string
  readonly program: string
  readonly arguments: readonly string[]
  readonly environment?: Readonly<Record<string, string>>
  /** Some servers refuse to run as root. */
  readonly user?: { readonly uid: number; readonly gid: number }
  /** The signal that asks it to end in order, with its data complete. */
  readonly quit: NodeJS.Signals
  /** The signal that ends it when the data does not matter any more. */
  readonly end?: NodeJS.Signals
  /** True when it can do its work, not merely when it listens. An error means "not yet". */
  ready(): Promise<boolean>
}

const launcher = join(import.meta.dirname, 'launch.sh')
let launched = 0

export async function startServer(definition: Definition): Promise<Server> {
  const server = new ManagedServer(definition)
  try {
    await server.restart()
  } catch (error) {
    await server.stop()
    throw error
  }
  return server
}

class ManagedServer implements Server {
  readonly name: string
  readonly host = host
  readonly port: number
  readonly url: string
  readonly folder: string
  pid = 0
  readonly #definition: Definition
  readonly #logFile: string
  #child: ChildProcess | null = null
  #exited: Promise<void> | null = null
  #stopped = false

  constructor(definition: Definition) {
    this.#definition = definition
    this.name = definition.name
    this.port = definition.port
    this.folder = definition.folder
    this.url = definition.url
    this.#logFile = join(definition.folder, 'log.txt')
  }

  log(): string {
    return readFileSync(this.#logFile, 'utf8')
  }

  async pause(): Promise<void> {
    this.#mustRun('pause')
    await pauseTree(this.pid)
  }

  async resume(): Promise<void> {
    this.#mustRun('resume')
    resumeTree(this.pid)
  }

  async kill(): Promise<void> {
    if (this.#exited === null) return
    killTree(this.pid)
    await this.#untilExited()
  }

  async restart(): Promise<void> {
    if (this.#stopped) throw new Error(`${this.name} was stopped and its data is gone`)
    await this.#end(this.#definition.quit)
    this.#spawn()
    await this.#untilReady()
  }

  async stop(): Promise<void> {
    if (this.#stopped) return
    this.#stopped = true
    await this.#end(this.#definition.end ?? 'SIGKILL')
    removeFolder(this.folder)
    for (const port of [this.port, ...(this.#definition.otherPorts ?? [])]) releasePort(port)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  async #end(how: NodeJS.Signals): Promise<void> {
    if (this.#exited === null) return
    if (how === 'SIGKILL') return this.kill()
    resumeTree(this.pid)
    signal(this.pid, how)
    const patience = new AbortController()
    const late = sleep(10_000, undefined, { signal: patience.signal }).catch(() => {})
    await Promise.race([this.#untilExited(), late])
    patience.abort()
    await this.kill()
  }

  /** Nothing but the child may be left for the process to wait for, so for once the child counts. */
  async #untilExited(): Promise<void> {
    this.#child?.ref()
    await this.#exited
  }

  #spawn(): void {
    const { program, arguments: given, environment, user } = this.#definition
    launched += 1
    const record = join(currentRun().folder, 'processes', String(launched))
    closeSync(openSync(record, 'w'))
    if (user) chownSync(record, user.uid, user.gid)
    // A file and not a pipe: a server must not stand still, or die, because its output is not read.
    const log = openSync(this.#logFile, 'a')
    const child = spawn('sh', [launcher, record, program, ...given], {
      cwd: this.folder,
      // A group of its own, so that Ctrl-C at the terminal reaches the harness and not the servers.
      detached: true,
      stdio: ['ignore', log, log],
      env: { ...inherited(), ...environment },
      ...user,
    })
    closeSync(log)
    if (child.pid === undefined) throw new Error(`${this.name} could not be started`)
    this.pid = child.pid
    // Servers that were not stopped do not keep the process alive; when it ends, the watchdog ends them.
    child.unref()
    this.#child = child
    this.#exited = this.#whenExited(child, record)
  }

  async #whenExited(child: ChildProcess, record: string): Promise<void> {
    await new Promise((resolve) => child.once('exit', resolve))
    rmSync(record, { force: true })
    this.#exited = null
  }

  async #untilReady(): Promise<void> {
    try {
      await waitFor(`${this.name} to be ready`, async () => {
        if (this.#exited === null) throw new GivenUp(`${this.name} ended while it started`)
        return this.#definition.ready()
      })
    } catch (error) {
      // The folder goes, and its log with it, so what it said last belongs into the message.
      throw new Error(`${(error as Error).message}; it said:\n${this.log().slice(-2_000)}`, { cause: error })
    }
  }

  #mustRun(what: string): void {
    if (this.#exited === null) throw new Error(`cannot ${what} ${this.name}: it does not run`)
  }
}

/** The environment without what would make a server's behaviour depend on who runs the tests. */
function inherited(): NodeJS.ProcessEnv {
  const names = Object.keys(process.env).filter((name) => /^(PATH|HOME|TMPDIR|LANG|JAVA_HOME|TZ)$/.test(name))
  return Object.fromEntries(names.map((name) => [name, process.env[name]]))
}
