/**
 * The command as a process, and its end together with us.
 *
 *   without a terminal   it leads a session and a group of its own, and all of the group is signalled
 *   with a terminal      it stays in the foreground group, so that Ctrl-C and job control work; it alone is signalled
 *
 * A watchdog, a shell in a session of its own, reads from a pipe whose other end only we hold. We write the command's id, and a line
 * when it has ended. If we are killed, the kernel closes the pipe, and the watchdog kills the command.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { isatty } from 'node:tty'
import { EXIT, Exit } from './exits.ts'
import { signalExit } from './signals.ts'
import { say } from './terminal.ts'

// dash takes no -- before the id of a group.
const WATCHDOG = `trap '' HUP INT QUIT TERM USR1 USR2
read -r target || exit
read -r _ || kill -KILL "$target"`

export class Child {
  /** The exit code, as a shell reports it. If the command cannot be run, this rejects or the constructor throws. */
  readonly ended: Promise<number>
  readonly hasTerminal: boolean
  readonly #watchdog: ChildProcess
  #pid: number | undefined
  #hasEnded = false

  constructor(command: readonly string[], env: NodeJS.ProcessEnv) {
    const [file = '', ...args] = command
    // To ask process.stdin would open it, and what it shares with the command would change.
    this.hasTerminal = isatty(0)
    const watchdog = startWatchdog()
    let child: ChildProcess
    try {
      child = spawn(file, args, { stdio: 'inherit', env, detached: !this.hasTerminal })
    } catch (error) {
      // Node throws some failures and emits others.
      watchdog.stdin?.end()
      throw unrunnable(file, error as NodeJS.ErrnoException)
    }
    this.#pid = child.pid
    if (child.pid !== undefined) watchdog.stdin?.write(`${this.#target(child.pid)}\n`)
    this.#watchdog = watchdog
    this.ended = settled(child, file).finally(() => {
      this.#hasEnded = true
    })
  }

  /** Whether the command, or a process of its group, is still there. */
  get isAlive(): boolean {
    return this.hasTerminal ? !this.#hasEnded : this.send(0)
  }

  /** False: nobody is there who can get it. */
  send(signal: NodeJS.Signals | 0): boolean {
    if (this.#pid === undefined || (this.hasTerminal && this.#hasEnded)) return false
    try {
      return process.kill(this.#target(this.#pid), signal)
    } catch (error) {
      // Else it has ended meanwhile.
      if (signal !== 0 && (error as NodeJS.ErrnoException).code === 'EPERM')
        say(`the command has taken other rights (sudo does), so ${signal} cannot be sent to it.`)
      return false
    }
  }

  /** It has ended, or nobody waits for its end: the watchdog goes home. */
  done(): void {
    this.#watchdog.stdin?.end('\n')
  }

  #target(pid: number): number {
    return this.hasTerminal ? pid : -pid
  }
}

function startWatchdog(): ChildProcess {
  const watchdog = spawn('/bin/sh', ['-c', WATCHDOG], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] })
  watchdog.on('error', ({ message }) =>
    say(`no watchdog: ${message}. If holdfast is killed, the command goes on.`),
  )
  watchdog.stdin?.on('error', () => {})
  watchdog.unref()
  return watchdog
}

function settled(child: ChildProcess, file: string): Promise<number> {
  return new Promise((resolve, reject) => {
    child.on('exit', (code, signal) => resolve(signal === null ? (code ?? 0) : signalExit(signal)))
    child.on('error', (error: NodeJS.ErrnoException) => reject(unrunnable(file, error)))
  })
}

function unrunnable(file: string, cause: NodeJS.ErrnoException): Exit {
  const name = JSON.stringify(file)
  if (cause.code === 'ENOENT' || file === '')
    return new Exit(EXIT.notFound, `${name} was not found.`, { cause })
  return new Exit(EXIT.notExecutable, `${name} cannot be run: ${cause.message}.`, { cause })
}
