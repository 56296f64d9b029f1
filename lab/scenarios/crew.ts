/** The client processes: how they are started, spoken to, stopped, continued and ended, and what they report. */
import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { kill, pause, resume } from '../faults/signals.ts'
import type { Note, Order, Report, Setup } from './messages.ts'
import { nowMs } from './observer.ts'

/** All but the notes, which are kept here. */
export type ClientReport = Exclude<Report, { kind: 'note' | 'ready' }>

export interface Stop {
  readonly client: string
  readonly from: number
  until: number
}

export class Crew {
  readonly clients: readonly string[]
  readonly startedAt = nowMs()
  /** Each client's part of the history, and the harness's own. */
  readonly notes = new Map<string, Note[]>()
  readonly stops: Stop[] = []
  readonly #setup: Omit<Setup, 'client'>
  readonly #children = new Map<string, ChildProcess>()
  readonly #failure = Promise.withResolvers<never>()
  readonly #listeners = new Set<(client: string, report: ClientReport) => void>()
  #isEnding = false

  constructor(clients: readonly string[], setup: Omit<Setup, 'client'>) {
    this.clients = clients
    this.#setup = setup
    // It is for whoever waits meanwhile.
    this.#failure.promise.catch(() => {})
  }

  /** Resolves when all of them are up. */
  async start(): Promise<void> {
    await this.orFailure(Promise.all(this.clients.map((client) => this.#startOne(client))))
  }

  #startOne(client: string): Promise<void> {
    const child = fork(
      join(import.meta.dirname, 'worker.ts'),
      [JSON.stringify({ ...this.#setup, client } satisfies Setup)],
      {
        execArgv: ['--disable-warning=ExperimentalWarning'],
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
        serialization: 'advanced',
      },
    )
    this.#children.set(client, child)
    const notes: Note[] = []
    this.notes.set(client, notes)
    child.on('error', (error) => this.#failure.reject(error))
    child.once('exit', (code, signal) => {
      if (!this.#isEnding)
        this.#failure.reject(new Error(`${client} ended unexpectedly (${signal ?? `exit code ${code}`}).`))
    })
    return new Promise((resolve) => {
      child.on('message', (message) => {
        const report = message as Report
        if (report.kind === 'note') notes.push(report.note)
        else if (report.kind === 'ready') resolve()
        else for (const listener of this.#listeners) listener(client, report)
      })
    })
  }

  /** What is waited for, unless a client dies first. */
  orFailure<T>(awaited: Promise<T>): Promise<T> {
    return Promise.race([awaited, this.#failure.promise])
  }

  onReport(listener: (client: string, report: ClientReport) => void): void {
    this.#listeners.add(listener)
  }

  /** The next report of this kind by this client. */
  next(client: string, kind: ClientReport['kind']): Promise<ClientReport> {
    return this.orFailure(
      new Promise((resolve) => {
        const listener = (who: string, report: ClientReport) => {
          if (who !== client || report.kind !== kind) return
          this.#listeners.delete(listener)
          resolve(report)
        }
        this.#listeners.add(listener)
      }),
    )
  }

  order(client: string, order: Order): void {
    this.#childOf(client).send(order)
  }

  /**
   * Stops a client, but not inside of a transaction: then it would keep the file from all others, which is an outage
   * of the engine and another scenario.
   */
  async stop(client: string): Promise<Stop> {
    for (;;) {
      const stop: Stop = { client, from: nowMs(), until: Infinity }
      await pause(this.#childOf(client))
      if (!isBlocked(this.#setup.locks) && !isBlocked(this.#setup.resource)) {
        this.stops.push(stop)
        return stop
      }
      resume(this.#childOf(client))
      await sleep(5)
    }
  }

  continue(stop: Stop): void {
    resume(this.#childOf(stop.client))
    stop.until = nowMs()
  }

  /** At once, and also whoever is stopped. */
  async end(): Promise<void> {
    this.#isEnding = true
    await Promise.all([...this.#children.values()].map(kill))
  }

  /** For a process that is about to exit. */
  endNow(): void {
    this.#isEnding = true
    for (const child of this.#children.values()) child.kill('SIGKILL')
  }

  #childOf(client: string): ChildProcess {
    const child = this.#children.get(client)
    if (child === undefined) throw new Error(`no client ${client}`)
    return child
  }
}

function isBlocked(path: string): boolean {
  const database = new DatabaseSync(path)
  try {
    database.exec('PRAGMA busy_timeout = 250; BEGIN IMMEDIATE; ROLLBACK')
    return false
  } catch (error) {
    if (/locked|busy/.test((error as Error).message)) return true
    throw error
  } finally {
    database.close()
  }
}
