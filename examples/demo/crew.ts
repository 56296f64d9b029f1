/** The worker processes, which serve all rounds: how they are started, spoken to, stopped, woken and ended. */
import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import { nowMs, type Orders, type RoundEvent } from './events.ts'

export const workerNames = ['Ada', 'Ben', 'Cleo'] as const

export class Crew {
  onReport: (event: RoundEvent) => void = () => {}
  onFailure: (error: Error) => void = () => {}
  readonly #workers = new Map<string, ChildProcess>()

  /** Resolves when all of them are up. */
  async start(): Promise<void> {
    await Promise.all(workerNames.map((name) => this.#startOne(name)))
  }

  #startOne(name: string): Promise<void> {
    const worker = fork(join(import.meta.dirname, 'worker.ts'), [name], {
      execArgv: ['--disable-warning=ExperimentalWarning'],
      stdio: ['pipe', 'ignore', 'inherit', 'ipc'],
    })
    this.#workers.set(name, worker)
    // A worker that dies takes its pipe with it; its exit says so better than a write error.
    worker.stdin?.on('error', () => {})
    return new Promise((resolve, reject) => {
      worker.on('message', (event) => {
        if ((event as RoundEvent).kind === 'ready') resolve()
        else this.onReport(event as RoundEvent)
      })
      worker.once('error', reject)
      worker.once('exit', (code, signal) => {
        const error = new Error(`${name} ended unexpectedly (${signal ?? `exit code ${code}`}).`)
        reject(error)
        this.onFailure(error)
      })
    })
  }

  order(name: string, orders: Orders): void {
    this.#workers.get(name)?.send(orders)
  }

  /** Lets a worker go on that holds its breath before it writes. */
  answer(name: string): void {
    this.#workers.get(name)?.stdin?.write('.')
  }

  freeze(name: string): RoundEvent {
    this.#workers.get(name)?.kill('SIGSTOP')
    return { kind: 'stopped', worker: name, atMs: nowMs() }
  }

  wake(name: string): RoundEvent {
    const event: RoundEvent = { kind: 'continued', worker: name, atMs: nowMs() }
    this.#workers.get(name)?.kill('SIGCONT')
    return event
  }

  /** At once, and also frozen workers. */
  end(): void {
    this.onFailure = () => {}
    for (const worker of this.#workers.values()) worker.kill('SIGKILL')
  }
}
