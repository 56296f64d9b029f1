/**
 * The way between a client and its engine, on which things go wrong.
 *
 *   sent ──▶ (held while frozen) ──▶ landed at the engine ──▶ (held while frozen) ──▶ answered
 *
 * A request that was sent may land although its caller has gone; an answer without a caller is dropped.
 */
import { callWith } from '../base/aborting.ts'
import type { Clock, Timer } from '../base/clock.ts'
import { BackendUnavailableError, type CallOutcome, ClosedError, outcomeOf } from '../base/errors.ts'
import type { Call } from '../spi.ts'
import type { QueuedCall } from './enqueued.ts'
import type { CallKind, Fault, FaultKind, FaultPlan, PlannedCall } from './faults.ts'

/** A call, and what has become of it. */
export interface LoggedCall extends PlannedCall {
  readonly fault: FaultKind | null
  /** How often its request has reached the engine so far: 0, 1, or 2 for a duplicate. */
  readonly landed: number
  /** The outcome that its caller has been told. */
  readonly outcome: 'pending' | 'answered' | CallOutcome
}

export interface WireOptions {
  readonly clock: Clock
  readonly backendName: string
  readonly plan: FaultPlan
}

export class FaultyWire {
  readonly log: LoggedCall[] = []
  readonly #options: WireOptions
  readonly #scripted = new Map<CallKind, Fault[]>()
  readonly #pending = new Set<Transmission<unknown>>()
  readonly #timers = new Set<Timer>()
  #held: (() => void)[] = []
  #calls = 0
  #state: 'up' | 'frozen' | 'cut' | 'closed' = 'up'

  constructor(options: WireOptions) {
    this.#options = options
  }

  get state(): 'up' | 'frozen' | 'cut' | 'closed' {
    return this.#state
  }

  send<T>(kind: CallKind, name: string | null, call: Call, make: (call: Call) => Promise<T>): Promise<T> {
    const planned = { number: ++this.#calls, kind, name }
    const fault = this.#scripted.get(kind)?.shift() ?? this.#options.plan(planned)
    const entry = { ...planned, fault: fault?.kind ?? null, landed: 0, outcome: 'pending' as const }
    const transmission = new Transmission<T>(this, entry, call, make)
    this.log.push(entry)
    if (this.#state === 'closed') transmission.fail(new ClosedError('The faulty backend'))
    else if (this.#state === 'cut')
      transmission.fail(this.error(kind, 'the connection is cut', 'not-applied'))
    else if (call.signal.aborted)
      transmission.fail(this.error(kind, 'the call was cancelled before it was made', 'not-applied'))
    else {
      this.#pending.add(transmission as Transmission<unknown>)
      if (fault?.kind === 'frozen') this.#held.push(() => transmission.start(null))
      else this.whenThawed(() => transmission.start(fault))
    }
    return transmission.promise
  }

  next(kind: CallKind, fault: Fault): void {
    const scripted = this.#scripted.get(kind) ?? []
    scripted.push(fault)
    this.#scripted.set(kind, scripted)
  }

  freeze(): void {
    if (this.#state === 'up') this.#state = 'frozen'
  }

  unfreeze(): void {
    if (this.#state === 'frozen') this.#state = 'up'
    const held = this.#held
    this.#held = []
    for (const goOn of held) goOn()
  }

  cutOff(): void {
    if (this.#state === 'closed') return
    this.#state = 'cut'
    this.#held = []
    for (const transmission of [...this.#pending])
      transmission.fail(this.error(transmission.kind, 'the connection was cut', 'unknown'))
  }

  restore(): void {
    if (this.#state === 'cut') this.#state = 'up'
  }

  calm(): void {
    this.#scripted.clear()
    this.restore()
    this.unfreeze()
  }

  close(): void {
    this.#state = 'closed'
    this.#held = []
    for (const timer of this.#timers) timer.cancel()
    for (const transmission of [...this.#pending]) transmission.fail(new ClosedError('The faulty backend'))
  }

  // --- for transmissions -----------------------------------------------------------------------------------

  whenThawed(goOn: () => void): void {
    if (this.#state === 'frozen') this.#held.push(goOn)
    else goOn()
  }

  later(ms: number, goOn: () => void): void {
    const timer = this.#options.clock.setTimer(ms, () => {
      this.#timers.delete(timer)
      goOn()
    })
    this.#timers.add(timer)
  }

  ended(transmission: Transmission<unknown>): void {
    this.#pending.delete(transmission)
  }

  error(kind: CallKind, why: string, outcome: CallOutcome): BackendUnavailableError {
    return new BackendUnavailableError(this.#options.backendName, `${kind}: ${why}`, outcome)
  }
}

type Entry = { -readonly [Key in keyof LoggedCall]: LoggedCall[Key] }

class Transmission<T> {
  readonly promise: Promise<T>
  readonly #wire: FaultyWire
  readonly #entry: Entry
  readonly #call: QueuedCall
  readonly #make: (call: Call) => Promise<T>
  /** Connections that still listen for an answer of the engine. */
  readonly #listening = new Set<AbortController>()
  #resolve: (value: T) => void = () => {}
  #reject: (error: unknown) => void = () => {}
  // Unknown also when nothing has landed yet: it may be in flight.
  readonly #onAbort = () => this.fail(this.#wire.error(this.kind, 'the call was cancelled', 'unknown'))

  constructor(wire: FaultyWire, entry: Entry, call: QueuedCall, make: (call: Call) => Promise<T>) {
    this.#wire = wire
    this.#entry = entry
    this.#call = call
    this.#make = make
    this.promise = new Promise<T>((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    call.signal.addEventListener('abort', this.#onAbort, { once: true })
  }

  get kind(): CallKind {
    return this.#entry.kind
  }

  start(fault: Fault | null): void {
    switch (fault?.kind) {
      case undefined:
      case 'frozen':
        this.#relay(this.#land())
        break
      case 'error-before':
        this.fail(fault.error ?? this.#wire.error(this.kind, 'injected failure', 'not-applied'))
        break
      case 'error-after':
        this.#failAfterwards(fault.error)
        break
      case 'lost-request':
        break
      case 'lost-reply':
        this.#landUnheard()
        break
      case 'late-reply':
        this.#relay(this.#land(), fault.ms)
        break
      case 'late-landing':
        this.#wire.later(fault.ms, () => this.#landUnheard())
        this.fail(this.#wire.error(this.kind, 'injected failure', 'unknown'))
        break
      case 'duplicate':
        this.#relay(this.#land())
        if (fault.ms === undefined) this.#landUnheard()
        else this.#wire.later(fault.ms, () => this.#landUnheard())
    }
  }

  fail(error: unknown): void {
    if (!this.#end(outcomeOf(error))) return
    this.#reject(error)
    for (const controller of this.#listening) controller.abort(error)
  }

  #succeed(value: T): void {
    if (this.#end('answered')) this.#resolve(value)
  }

  /** The request reaches the engine, now. */
  async #land(onQueued = () => this.#call.queued?.()): Promise<T> {
    this.#entry.landed++
    const controller = new AbortController()
    this.#listening.add(controller)
    const queued = () => {
      if (this.#entry.outcome === 'pending' && this.#wire.state === 'up') onQueued()
    }
    const progressed = (left: number) => {
      if (this.#entry.outcome === 'pending' && this.#wire.state === 'up') this.#call.onProgress?.(left)
    }
    try {
      return await this.#make(callWith(controller.signal, { queued, onProgress: progressed }))
    } finally {
      this.#listening.delete(controller)
    }
  }

  /** The outcome of the call is not reported. */
  #landUnheard(): void {
    this.#land().catch(() => {})
  }

  #relay(answer: Promise<T>, lateByMs = 0): void {
    const deliver = (goOn: () => void) => {
      if (lateByMs === 0) this.#wire.whenThawed(goOn)
      else this.#wire.later(lateByMs, () => this.#wire.whenThawed(goOn))
    }
    answer.then(
      (value) => deliver(() => this.#succeed(value)),
      (error: unknown) => deliver(() => this.fail(error)),
    )
  }

  /** Joining the queue is an effect too: a position that was taken is not reported. */
  #failAfterwards(error: unknown): void {
    const failed = () => this.fail(error ?? this.#wire.error(this.kind, 'injected failure', 'unknown'))
    this.#land(() => void Promise.resolve().then(failed)).then(failed, failed)
  }

  #end(outcome: LoggedCall['outcome']): boolean {
    if (this.#entry.outcome !== 'pending') return false
    this.#entry.outcome = outcome
    this.#call.signal.removeEventListener('abort', this.#onAbort)
    this.#wire.ended(this as Transmission<unknown>)
    return true
  }
}
