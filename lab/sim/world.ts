/** Everything of one run, put together: clients, network, engine, resource, faults and checks. */
import { Checks } from './checks.ts'
import { Client } from './client.ts'
import type { SimConnection } from './connection.ts'
import { EngineServer } from './engine/engine-server.ts'
import type { EnginePush, EngineRequest } from './engine/messages.ts'
import { type Fault, faultsEndMs } from './faults.ts'
import { History } from './history.ts'
import type { SimProcess } from './machine.ts'
import { happen } from './misfortunes.ts'
import { Network } from './network.ts'
import { stream } from './random.ts'
import { ResourceServer } from './resource.ts'
import { Scheduler } from './scheduler.ts'
import type { Settings } from './settings.ts'
import { Trace } from './trace.ts'

export interface Violation {
  readonly rule: string
  readonly message: string
  readonly atMs: number
}

export interface WorldOptions {
  readonly keepLines: boolean
  readonly keepHistory: boolean
}

const LOOK_AROUND_EVERY_MS = 1_000
/** More than twice what the busiest of two thousand runs needed between two looks. */
const MOST_EVENTS_A_LOOK = 1_000
const MOST_REQUESTS_A_LOOK = 120

export class World {
  readonly settings: Settings
  readonly scheduler = new Scheduler()
  readonly trace: Trace
  readonly counts = new Map<string, number>()
  readonly connections = new Map<string, SimConnection>()
  readonly network: Network
  readonly engine: EngineServer
  readonly resource: ResourceServer
  readonly checks: Checks
  readonly history: History
  readonly clients: readonly Client[]
  violation: Violation | null = null
  isStopping = false
  /** From here on nothing goes wrong any more; `Infinity` where faults go on to the end. */
  healedAtMs = Number.POSITIVE_INFINITY
  readonly #plan: readonly Fault[]
  /** How many there had been at the last look. */
  #eventsSeen = 0
  /** Addresses of lockers that have been told to close. */
  readonly #closing = new Set<string>()
  /** By session: the abandons that have not been answered, and when they are to be given up. */
  readonly #unresolved = new Map<string, Map<string, number>>()

  constructor(settings: Settings, plan: readonly Fault[], options: WorldOptions) {
    const { seed, latencyMs, syncMs, expirySlackMs, grantedShare, engineRate } = settings
    this.settings = settings
    this.#plan = plan
    this.trace = new Trace(options)
    this.checks = new Checks(this)
    this.history = new History(this, { isKept: options.keepHistory })
    const count = (what: string) => this.count(what)
    this.network = new Network(this.scheduler, seed, latencyMs, count)
    const server = { scheduler: this.scheduler, syncMs, count }
    const late = stream(seed, 'late')
    this.engine = new EngineServer({
      ...server,
      dice: stream(seed, 'engine-sync'),
      rate: engineRate,
      grantTtl: (askedMs) => Math.round(askedMs * grantedShare),
      lateByMs: () => late.fraction() * expirySlackMs,
      observer: this.checks,
      push: (address, push) => this.#push(address, push),
    })
    this.resource = new ResourceServer({
      ...server,
      dice: stream(seed, 'resource-sync'),
      forgetAfterMs: settings.guardForgetsAfterMs,
      observer: {
        visited: (visit, accepted) => {
          this.count(accepted ? 'guard accepted' : 'guard refused')
          this.history.visited(visit, accepted, this.resource.journal)
          this.note(
            'resource',
            accepted ? 'accepts' : 'refuses',
            `${visit.kind} ${visit.fence.name} token ${visit.fence.token}`,
          )
        },
        lostUpdate: (register, fence) => {
          this.count(`lost update ${register}`)
          if (register === 'guarded')
            this.fail(
              'G5',
              `an update of ${fence.name} got lost behind the guard, under token ${fence.token}`,
            )
        },
      },
    })
    this.clients = settings.clocks.map((_, index) => new Client(this, index))
  }

  get nowMs(): number {
    return this.scheduler.nowMs
  }

  async run(): Promise<void> {
    const { settings, scheduler } = this
    for (const fault of this.#plan) scheduler.at(fault.atMs, () => happen(this, fault))
    for (const client of this.clients) client.start()
    const lookAround = () => {
      this.checks.lookAround()
      this.#mustNotSpin()
      scheduler.after(LOOK_AROUND_EVERY_MS, lookAround)
    }
    // Faults begin and end on whole milliseconds: never look while one of them is just ending.
    scheduler.after(LOOK_AROUND_EVERY_MS + 0.5, lookAround)
    if (settings.mode === 'liveness') this.#planEnding()
    await scheduler.run(settings.durationMs)
    if (settings.mode === 'liveness' && this.violation === null) this.#nothingIsLeft()
    // Objects of this world that the collector finds later must not stir any more.
    for (const client of this.clients) client.process.kill()
  }

  /** Retries and renewals have their pauses, however short the time that is left and however fast they fail (T32, hot renewals). */
  #mustNotSpin(): void {
    const events = this.scheduler.events - this.#eventsSeen
    this.#eventsSeen = this.scheduler.events
    if (events > MOST_EVENTS_A_LOOK) this.fail('T32', `${events} events within a second: something runs hot`)
    for (const connection of this.connections.values()) {
      const requests = connection.takeSent()
      if (requests > MOST_REQUESTS_A_LOOK)
        this.fail('T32', `${connection.address} made ${requests} requests within a second`)
    }
  }

  fail(rule: string, message: string): void {
    if (this.violation !== null) return
    this.violation = { rule, message, atMs: this.nowMs }
    this.note('check', rule, message)
    this.scheduler.stop()
  }

  note(who: string, what: string, detail: string | number = ''): void {
    this.trace.note(this.nowMs, who, what, detail)
  }

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1)
  }

  // --- what the backend tells ------------------------------------------------------------------------------

  noteLanding(address: string, request: EngineRequest): void {
    this.note('engine', 'takes', `${request.kind} of ${address}`)
  }

  abandoning(session: string, attempt: string, ttlMs: number): void {
    this.checks.answered(attempt)
    const attempts = this.#unresolved.get(session) ?? new Map()
    this.#unresolved.set(session, attempts)
    if (!attempts.has(attempt)) attempts.set(attempt, this.nowMs + ttlMs * 0.9)
  }

  abandoned(session: string, attempt: string): void {
    this.#unresolved.get(session)?.delete(attempt)
  }

  closing(session: string): void {
    if (this.isHopeless(session)) this.count('unresolved for one TTL')
  }

  /** Whether something of this session has been unresolved for so long that it had to be given up. */
  isHopeless(session: string): boolean {
    for (const hopelessAtMs of this.#unresolved.get(session)?.values() ?? [])
      if (hopelessAtMs <= this.nowMs) return true
    return false
  }

  closingLocker(address: string): void {
    this.#closing.add(address)
  }

  isClosing(address: string): boolean {
    return this.#closing.has(address)
  }

  isGathering(process: SimProcess, name: string): boolean {
    return this.clients.some((client) => client.process === process && (client.gathering.get(name) ?? 0) > 0)
  }

  lostNeedlessly(leaseId: string): void {
    this.count('needless loss')
    this.note('check', 'lost needlessly', leaseId)
  }

  /** A wait that was granted must have been granted within its time, unless its machine stood still. */
  noteWait(client: Client, startMs: number, waitMs: number): void {
    const allowedMs = waitMs * 1.01 + 50
    if (client.machine.lastStopMs < startMs && this.nowMs - startMs > allowedMs)
      this.fail(
        'T54',
        `an acquire of several names took ${Math.round(this.nowMs - startMs)} ms of ${Math.round(waitMs)}`,
      )
  }

  #push(address: string, push: EnginePush): void {
    const connection = this.connections.get(address)
    if (connection === undefined) return
    const client = Number(address.slice(1, address.indexOf('x')))
    this.network.send({
      client,
      server: 'engine',
      direction: 'in',
      isPush: true,
      deliver: () => connection.process.deliver(() => connection.receivePush(push)),
    })
  }

  // --- the end of a run that must come to an end -------------------------------------------------------------

  #planEnding(): void {
    const { scheduler, settings, clients } = this
    const { durationMs } = settings
    scheduler.at(faultsEndMs(settings), () => {
      this.healedAtMs = this.nowMs
    })
    scheduler.at(durationMs * 0.68, () => {
      this.isStopping = true
    })
    scheduler.at(durationMs * 0.88, () => {
      for (const client of clients) {
        if (client.isBusy)
          return this.fail('G10', `client c${client.index} is still waiting although nothing is in its way`)
        let isClosed = false
        client.closeLocker().then(() => {
          isClosed = true
        })
        scheduler.at(durationMs * 0.95, () => {
          if (!isClosed) this.fail('G10', `the locker of client c${client.index} does not close`)
        })
      }
    })
  }

  #nothingIsLeft(): void {
    const { sessions, names } = this.engine.engine
    if (sessions.size > 0) this.fail('G6', `${sessions.size} sessions are left behind`)
    for (const name of names.values())
      if (name.holders.size > 0 || name.line.length > 0)
        this.fail('G6', `${name.name} is still held or waited for in the end`)
    for (const { process, index } of this.clients)
      if (process.timers > 0)
        this.fail('T29', `${process.timers} timers of client c${index} outlive its lockers`)
  }
}
