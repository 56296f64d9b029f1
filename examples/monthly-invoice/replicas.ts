/** The replica processes, and what happens to them while they are at it. */
import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import type { Order, Outcome, Report } from './messages.ts'

/**
 * `together`: all of them have decided to run the job before the first one does.
 * `killed`: the first that is about to write is killed.
 * `frozen`: the first that is about to write stands still until another one has run the job, and then goes on.
 */
export type Misfortune = 'nothing' | 'together' | 'killed' | 'frozen'

export interface MonthEnd {
  readonly outcomes: ReadonlyMap<string, Outcome>
  /** Those whose write was refused. */
  readonly refused: readonly string[]
  /** Whom it happened to. */
  readonly victim: string | undefined
}

export class Replicas implements Disposable {
  readonly #processes = new Map<string, ChildProcess>()
  #onReport: (replica: string, report: Report) => void = () => {}
  #onFailure: (error: Error) => void = () => {}

  static async start(count: number, url: string): Promise<Replicas> {
    const replicas = new Replicas()
    const names = Array.from({ length: count }, (_, index) => `replica-${index + 1}`)
    await Promise.all(names.map((name) => replicas.#startOne(name, url)))
    return replicas
  }

  get count(): number {
    return this.#processes.size
  }

  #startOne(name: string, url: string): Promise<void> {
    const program = join(import.meta.dirname, 'replica.ts')
    const replica = fork(program, [name, url], { stdio: ['pipe', 'ignore', 'inherit', 'ipc'] })
    this.#processes.set(name, replica)
    // A dead replica does not read; its exit says so better than a write error.
    replica.stdin?.on('error', () => {})
    return new Promise((resolve, reject) => {
      replica.on('message', (report: Report) => {
        if (report.kind === 'ready') resolve()
        else this.#onReport(name, report)
      })
      replica.once('error', reject)
      replica.once('exit', (code, signal) => {
        // Replicas that are killed on purpose have been taken off the list.
        if (!this.#processes.delete(name)) return
        const error = new Error(`${name} ended unexpectedly (${signal ?? `exit code ${code}`}).`)
        reject(error)
        this.#onFailure(error)
      })
    })
  }

  /** All replicas wake for this month. Resolves when every one that lives has an outcome. */
  wakeFor(order: Order, misfortune: Misfortune): Promise<MonthEnd> {
    const outcomes = new Map<string, Outcome>()
    const refused: string[] = []
    const aboutToWrite: string[] = []
    return new Promise((resolve, reject) => {
      this.#onFailure = reject
      this.#onReport = (replica, report) => {
        if (report.kind === 'about-to-write') {
          aboutToWrite.push(replica)
          this.#befall(misfortune, replica, aboutToWrite)
        }
        if (report.kind === 'refused') refused.push(replica)
        if (report.kind === 'finished') {
          outcomes.set(replica, report.outcome)
          const [first] = aboutToWrite
          if (misfortune === 'frozen' && report.outcome === 'ran' && replica !== first) this.#goOn(first)
        }
        if (outcomes.size === this.count)
          resolve({ outcomes, refused, victim: isOnOne(misfortune) ? aboutToWrite[0] : undefined })
      }
      for (const replica of this.#processes.values()) replica.send(order)
    })
  }

  #befall(misfortune: Misfortune, replica: string, aboutToWrite: readonly string[]): void {
    const isFirst = aboutToWrite[0] === replica && aboutToWrite.length === 1
    if (misfortune === 'together') {
      if (aboutToWrite.length === this.count) for (const each of aboutToWrite) this.#goOn(each)
    } else if (misfortune === 'killed' && isFirst) this.#kill(replica)
    else if (misfortune !== 'frozen' || !isFirst) this.#goOn(replica)
  }

  #goOn(replica: string | undefined): void {
    this.#processes.get(replica ?? '')?.stdin?.write('.')
  }

  #kill(name: string): void {
    const replica = this.#processes.get(name)
    this.#processes.delete(name)
    replica?.kill('SIGKILL')
  }

  [Symbol.dispose](): void {
    for (const name of [...this.#processes.keys()]) this.#kill(name)
  }
}

function isOnOne(misfortune: Misfortune): boolean {
  return misfortune === 'killed' || misfortune === 'frozen'
}
