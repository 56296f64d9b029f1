/** The client processes: how they are started, spoken to, stopped, continued and ended, and what they report. */
import { type ChildProcess, fork } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { kill, pause, resume } from '../faults/signals.ts'
import { type Incident, Incidents } from './incidents.ts'
import type { Note, Order, Report, Setup } from './messages.ts'
import { nowMs } from './observer.ts'

/** All but the notes, which are kept here. */
export type ClientReport = Exclude<Report, { kind: 'note' | 'ready' }>

/** Nothing takes that long unless something is broken. */
const patienceMs = 120_000

export interface CrewOptions {
  readonly clients: readonly string[]
  readonly setupOf: (client: string) => Setup
  /** Whether a client that stands still now would be in the way of all others. */
  readonly isBlocked: () => Promise<boolean>
}

export class Crew {
  readonly clients: readonly string[]
  readonly startedAt = nowMs()
  /** Each client's part of the history. */
  readonly notes = new Map<string, Note[]>()
  readonly incidents = new Incidents()
  readonly #options: CrewOptions
  readonly #children = new Map<string, ChildProcess>()
  readonly #failure = Promise.withResolvers<never>()
  readonly #listeners = new Set<(client: string, report: ClientReport) => void>()
  #isEnding = false

  constructor(options: CrewOptions) {
    this.clients = options.clients
    this.#options = options
    // It is for the waiters.
    this.#failure.promise.catch(() => {})
  }

  /** Resolves when all of them are up. */
  async start(): Promise<void> {
    await this.orFailure(Promise.all(this.clients.map((client) => this.#startOne(client))))
  }

  #startOne(client: string): Promise<void> {
    const child = fork(
      join(import.meta.dirname, 'worker.ts'),
      [JSON.stringify(this.#options.setupOf(client))],
      {
        execArgv: ['ExperimentalWarning', 'HOLDFAST_REDIS_PERSISTENCE', 'HOLDFAST_TTL'].map(
          (warning) => `--disable-warning=${warning}`,
        ),
        // Where Node keeps it by default. Several processes that strip the types of the same files at once take long.
        env: { NODE_COMPILE_CACHE: join(tmpdir(), 'node-compile-cache'), ...process.env },
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

  /** Waits for a promise, unless a client dies first. */
  orFailure<T>(awaited: Promise<T>): Promise<T> {
    return Promise.race([awaited, this.#failure.promise])
  }

  onReport(listener: (client: string, report: ClientReport) => void): void {
    this.#listeners.add(listener)
  }

  /** The next report of this kind by this client. */
  next(client: string, kind: ClientReport['kind']): Promise<ClientReport> {
    return this.orFailure(
      new Promise((resolve, reject) => {
        const settle = (act: () => void) => {
          clearTimeout(timer)
          this.#listeners.delete(listener)
          act()
        }
        const inVain = (why: string) => settle(() => reject(new Error(`${client} ${why}.`)))
        const timer = setTimeout(() => inVain(`has not reported "${kind}" for ${patienceMs} ms`), patienceMs)
        const listener = (who: string, report: ClientReport) => {
          if (who !== client) return
          if (report.kind === kind) settle(() => resolve(report))
          // Who is done without having read has no lease, and will not read any more.
          else if (kind === 'read' && report.kind === 'done')
            inVain(`was done (${report.outcome}) before it had read`)
        }
        this.#listeners.add(listener)
      }),
    )
  }

  order(client: string, order: Order): void {
    this.#childOf(client).send(order)
  }

  /** Orders something, and waits for the answer of this kind. */
  async ask(client: string, order: Order, kind: ClientReport['kind']): Promise<void> {
    const answer = this.next(client, kind)
    this.order(client, order)
    await answer
  }

  /** Stops a client, but not where it would be in everybody's way: that is an outage, and another scenario. */
  async stop(client: string): Promise<Incident> {
    for (;;) {
      const from = nowMs()
      await pause(this.#childOf(client))
      if (!(await this.#options.isBlocked()))
        return this.incidents.begin({ what: 'pause', client, how: 'stopped' }, from)
      resume(this.#childOf(client))
      await sleep(5)
    }
  }

  continue(stop: Incident): void {
    resume(this.#childOf(stop.client ?? ''))
    this.incidents.end(stop)
  }

  /** At once, and also those that are stopped. */
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
