/**
 * Makes long histories that keep every guarantee: clients that take turns on a correct engine, update a guarded
 * log, and meet lost requests, lost answers and pauses. Whatever a checker finds here is its own mistake, and
 * whatever is planted into them afterwards it must find.
 */
import type { About, History, HistoryEvent } from '../history.ts'
import { type Invoked, Recorder } from '../recorder.ts'
import { Engine } from './engine.ts'
import { Random } from './random.ts'
import { Timers } from './timers.ts'

export interface Simulation {
  readonly seed: number
  readonly clients: number
  /** Invocations of acquire and release together, about. */
  readonly operations: number
  readonly names?: number
  /** Permits per name; each client asks for one or two of them. Default: an exclusive lock. */
  readonly capacity?: number
  /** How often a request or an answer is lost, and how often a holder is paused. Default 0. */
  readonly faults?: number
  /** Renewals, updates and beliefs too, which make the history several times longer. Default true. */
  readonly everything?: boolean
}

export interface Simulated {
  readonly about: About
  readonly events: readonly HistoryEvent[]
  readonly history: History
}

const ttlMs = 60
const driftMs = 2

export function simulate(options: Simulation): Simulated {
  const timers = new Timers()
  const recorder = new Recorder(
    {
      backend: 'simulated',
      issuer: 'simulated',
      fencing: 'fenced',
      waiting: 'queue',
      expirySlackMs: 0,
      roundTripMs: 4,
      engineTimes: 'exact',
    },
    { now: () => timers.now },
  )
  const world = new World(options, timers, recorder)
  world.start()
  while (timers.step());
  world.finish()
  return { about: recorder.about, events: recorder.events, history: recorder.history() }
}

class World {
  readonly options: Required<Simulation>
  readonly timers: Timers
  readonly recorder: Recorder
  readonly random: Random
  readonly engine: Engine
  /** The guarded logs' entries, and the highest token that each guard has seen. */
  readonly entries = new Map<string, string[]>()
  readonly highest = new Map<string, bigint>()
  operationsLeft: number
  leases = 0

  constructor(options: Simulation, timers: Timers, recorder: Recorder) {
    this.options = { names: 1, capacity: 0, faults: 0, everything: true, ...options }
    this.timers = timers
    this.recorder = recorder
    this.random = new Random(options.seed)
    this.engine = new Engine(timers, recorder, ttlMs)
    this.operationsLeft = options.operations
  }

  start(): void {
    for (let client = 1; client <= this.options.clients; client++) new Client(this, `client ${client}`).rest()
  }

  finish(): void {
    this.recorder.add({ kind: 'quiet' })
    for (const [resource, entries] of this.entries)
      this.recorder.add({ kind: 'final', resource, total: entries.length, entries })
    for (let name = 0; name < this.options.names; name++) {
      const { now } = this.timers
      this.recorder.add({ kind: 'snapshot', name: `name ${name}`, askedAt: now, holders: [], waiters: [] })
    }
  }

  /** A message takes its time, and may get lost. */
  send(arrive: () => void, lost: () => void = () => {}): void {
    if (this.random.chance(this.options.faults)) lost()
    else this.timers.after(this.random.between(0.2, 1.8), arrive)
  }
}

class Client {
  readonly #world: World
  readonly #process: string

  constructor(world: World, process: string) {
    this.#world = world
    this.#process = process
  }

  rest(): void {
    const { timers, random } = this.#world
    if (this.#world.operationsLeft <= 0) return
    timers.after(random.between(0.1, 6), () => this.#acquire())
  }

  #acquire(): void {
    const { recorder, engine, random, options, timers } = this.#world
    this.#world.operationsLeft -= 2
    const name = `name ${random.below(options.names)}`
    const leaseId = `lease ${++this.#world.leases}`
    const asked =
      options.capacity === 0
        ? {}
        : { mode: 'permits' as const, capacity: options.capacity, weight: 1 + random.below(2) }
    const sentAt = timers.now
    const acquire = recorder.invoke({
      process: this.#process,
      op: 'acquire',
      name,
      leaseId,
      ttlMs,
      waits: true,
      ...asked,
    })
    const { weight = 1, capacity = 1 } = asked
    let answered = false
    let cutOff = false
    // A client that neither hears nor is heard is no living waiter.
    const lost = () => {
      if (!cutOff) recorder.add({ kind: 'fault', what: 'cut-off', phase: 'began', process: this.#process })
      cutOff = true
    }
    const granted = (token: bigint) =>
      this.#world.send(() => {
        if (answered) return
        answered = true
        new Tenure(this.#world, this, { name, leaseId, process: this.#process, token, ...asked }).open(
          acquire,
          sentAt,
        )
      }, lost)
    this.#world.send(
      () => engine.enqueue({ name, leaseId, process: this.#process, weight, capacity, granted }),
      lost,
    )
    timers.after(ttlMs * 3, () => {
      if (answered) return
      answered = true
      acquire.unknown({ error: 'no answer' })
      if (cutOff) recorder.add({ kind: 'fault', what: 'cut-off', phase: 'ended', process: this.#process })
      this.#abandon(name, leaseId)
    })
  }

  #abandon(name: string, leaseId: string): void {
    const { recorder, engine, timers } = this.#world
    const abandon = recorder.invoke({ process: this.#process, op: 'abandon', name, leaseId })
    timers.after(1, () => {
      engine.abandon(name, leaseId)
      timers.after(1, () => {
        abandon.ok()
        this.rest()
      })
    })
  }
}

interface Facts {
  readonly name: string
  readonly leaseId: string
  readonly process: string
  readonly token: bigint
  readonly mode?: 'permits'
  readonly weight?: number
  readonly capacity?: number
}

/** A client's use of a lease, from the answer to the acquire to the release. */
class Tenure {
  readonly #world: World
  readonly #client: Client
  readonly #facts: Facts
  #deadline = 0
  #over = false

  constructor(world: World, client: Client, facts: Facts) {
    this.#world = world
    this.#client = client
    this.#facts = facts
  }

  /** A grant that was long in coming is confirmed first: belief never counts from a receipt. */
  open(acquire: Invoked, sentAt: number): void {
    const { timers, engine } = this.#world
    if (timers.now - sentAt < ttlMs / 3) {
      this.#begin(acquire, sentAt)
      return
    }
    const askedAt = timers.now
    const again = () => timers.after(1, () => this.open(acquire, sentAt))
    this.#world.send(() => {
      const alive = engine.renew(this.#facts.name, this.#facts.leaseId)
      this.#world.send(() => (alive ? this.#begin(acquire, askedAt) : this.#fail(acquire)), again)
    }, again)
  }

  #fail(acquire: Invoked): void {
    acquire.unknown({ error: 'gone before it was confirmed' })
    this.#giveBack('abandon')
  }

  #begin(acquire: Invoked, sentAt: number): void {
    const { recorder, random, options, timers } = this.#world
    const { token, ...facts } = this.#facts
    this.#deadline = sentAt + ttlMs - driftMs
    acquire.ok({ token, ttlMs })
    if (options.everything) {
      recorder.add({ kind: 'belief', what: 'began', ...facts, token, sentAt, ttlMs, driftMs })
      timers.after(this.#deadline - timers.now, () => this.#expire())
      if (options.capacity === 0) this.#update()
      this.#renewLater()
    }
    const isPaused = random.chance(options.faults)
    timers.after(isPaused ? ttlMs * 2 : random.between(0.5, random.chance(0.1) ? ttlMs : 6), () =>
      this.#close(),
    )
  }

  #renewLater(): void {
    const { timers, recorder, engine, options } = this.#world
    const { name, leaseId, process } = this.#facts
    timers.after(ttlMs / 3, () => {
      if (this.#over) return
      const sentAt = timers.now
      const renew = recorder.invoke({ process, op: 'renew', name, leaseId, ttlMs })
      this.#world.send(() => {
        const renewed = engine.renew(name, leaseId)
        this.#world.send(() => {
          if (!renewed) return renew.fail()
          renew.ok()
          if (this.#over) return
          this.#deadline = Math.max(this.#deadline, sentAt + ttlMs - driftMs)
          recorder.add({ kind: 'belief', what: 'confirmed', leaseId, sentAt })
          timers.after(this.#deadline - timers.now, () => this.#expire())
        })
      })
      if (options.faults === 0 || this.#world.random.chance(0.7)) this.#renewLater()
    })
  }

  #expire(): void {
    if (this.#over || this.#world.timers.now < this.#deadline) return
    this.#end('lost')
  }

  #end(why: 'released' | 'lost'): void {
    this.#over = true
    if (!this.#world.options.everything) return
    const reason = why === 'lost' ? { reason: 'expired' } : {}
    this.#world.recorder.add({ kind: 'belief', what: 'ended', leaseId: this.#facts.leaseId, why, ...reason })
  }

  /** Through a guard that sees reads and writes: a stale holder is refused and changes nothing. */
  #update(): void {
    const { recorder, timers, entries, highest, random } = this.#world
    const { name, leaseId, process, token } = this.#facts
    const update = recorder.invoke({ process, op: 'update', name, leaseId, token, delta: 1, entry: leaseId })
    timers.after(random.between(0.1, random.chance(this.#world.options.faults) ? 3 * ttlMs : 1), () => {
      const seen = highest.get(name) ?? 0n
      const accepted = token >= seen
      const verdict = accepted ? ('accepted' as const) : ('refused' as const)
      const why = accepted ? {} : { reason: 'stale' as const, highest: seen }
      recorder.add({ kind: 'guard', guard: 'logs', name, verdict, token, leaseId, process, ...why })
      if (accepted) {
        highest.set(name, token)
        const log = entries.get(name) ?? []
        log.push(leaseId)
        entries.set(name, log)
      }
      if (random.chance(this.#world.options.faults)) return update.unknown()
      if (accepted) update.ok()
      else update.fail({ error: 'stale' })
    })
  }

  #close(): void {
    if (!this.#over) this.#end('released')
    this.#giveBack('release')
  }

  #giveBack(op: 'release' | 'abandon'): void {
    const { recorder, engine, timers } = this.#world
    const { name, leaseId, process } = this.#facts
    const release = recorder.invoke({ process, op, name, leaseId })
    let answered = false
    this.#world.send(() => {
      const released = engine.release(name, leaseId)
      this.#world.send(() => {
        if (answered) return
        answered = true
        if (released || op === 'abandon') release.ok()
        else release.fail({ error: 'not held' })
        this.#client.rest()
      })
    })
    timers.after(20, () => {
      if (answered) return
      answered = true
      release.unknown()
      this.#client.rest()
    })
  }
}
