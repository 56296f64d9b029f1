/**
 * Requests to an engine leave in batches, so that throughput grows with concurrency. A request that comes alone does not
 * wait for company: while there is room for a batch, it leaves at the end of the microtask. With `gathersPerTurn`, requests
 * that are not alone leave at the end of the turn of the event loop.
 *
 *   waiting ──room for a batch──▶ in flight ──answered──▶ settled
 *   waiting ──cancelled──▶ settled: not applied, because it is never sent
 *   in flight ──cancelled──▶ settled: unknown, because it may land all the same
 *   in flight ──the engine was busy, and nothing was done──▶ waiting
 *
 * A batch of which every request was cancelled has GRACE_MS to be answered. Then it is cancelled itself and stops counting as
 * in flight, because its answer may never come (T76, calls that never settle).
 */
import { Cancellation } from '../base/cancellation.ts'
import { afterThisTurn, type Clock, type Timer } from '../base/clock.ts'
import { BackendUnavailableError, type CallOutcome } from '../base/errors.ts'
import { ignore } from '../base/ignore.ts'
import type { Call } from '../spi.ts'
import { cancelledCall } from './backend-kit.ts'

/** Is told once what became of its request, without a promise in between. */
export interface Asker<Answer> {
  answered(answer: Answer): void
  failed(error: unknown): void
}

/**
 * An answer for each request, in their order; an Error fails its own request only. Or: the engine was busy and nothing was
 * done, so the requests go on waiting, and leave after a pause.
 */
export type Sent<Answer> = readonly (Answer | Error)[] | { readonly retryInMs: number }

export interface LaneOptions<Item, Answer> {
  /** The backend's name, for errors. */
  readonly backend: string
  readonly clock: Clock
  /**
   * A rejection makes the outcome of the whole batch what its error says. `call` is cancelled when no caller waits for the
   * batch any more. An engine in this process may answer without a promise.
   */
  readonly send: (items: readonly Item[], call: Call) => Promise<Sent<Answer>> | Sent<Answer>
  /** The most requests in one batch, such as 256. Further requests wait for the next batch. */
  readonly maxBatch: number
  /** 2 or more: the engine works on one batch while this process reads the answers of another. Default: 1. */
  readonly maxInFlight?: number
  /** Requests of one turn of the event loop leave together at its end, unless one is alone: nothing else is in flight or was just before. */
  readonly gathersPerTurn?: boolean
  /** A smaller batch is not split, because two small ones cost more. 32: 20 requests leave as one batch, 40 as two of 20. */
  readonly minSplit?: number
  /** A smaller batch waits while `freeInFlight` batches are in flight. 16: 15 requests wait for an answer or for one more. Default: 1. */
  readonly minFurther?: number
  /** The number of batches that leave at once, however small they are. 2: the third has to have `minFurther` requests. Default: 1. */
  readonly freeInFlight?: number
  /** For clients that write once in a turn of the event loop: two batches of one turn would be answered as one. */
  readonly oneBatchPerTurn?: boolean
  /** Two requests with the same key do not leave in one batch. */
  readonly keyOf?: (item: Item) => string
  /** A request waits while another for the same name is in flight, unless it overtakes. */
  readonly nameOf?: (item: Item) => string
  readonly overtakes?: (item: Item) => boolean
  /** A request that leaves at the end of the turn of the event loop, with what has come until then. */
  readonly isPatient?: (item: Item) => boolean
  /** While it is false, a batch may be in the client's own queue. It goes on counting, and no other leaves, so that this queue stays short. */
  readonly isConnected?: () => boolean
}

/** Much longer than an answer takes, unless the connection or the engine is stuck. */
const GRACE_MS = 1_000

/** A microtask without what Node's queueMicrotask adds to each. Test runners fake that one, too. */
const soon = Promise.resolve()

interface Entry<Item, Answer> {
  readonly item: Item
  readonly asker: Asker<Answer>
  untie: () => void
  /** The batch with which it has left. */
  batch: Batch<Item, Answer> | undefined
  isSettled: boolean
}

class Batch<Item, Answer> extends Cancellation {
  readonly entries: readonly Entry<Item, Answer>[]
  readonly items: readonly Item[]
  /** Callers that still wait. */
  present: number
  grace: Timer | undefined
  #names: ReadonlySet<string> | undefined

  constructor(entries: readonly Entry<Item, Answer>[]) {
    super()
    this.entries = entries
    this.present = entries.length
    const items: Item[] = []
    for (const entry of entries) {
      entry.batch = this
      items.push(entry.item)
    }
    this.items = items
  }

  names(nameOf: (item: Item) => string): ReadonlySet<string> {
    this.#names ??= new Set(this.items.map(nameOf))
    return this.#names
  }
}

export class Lane<Item, Answer> {
  readonly #options: LaneOptions<Item, Answer>
  readonly #maxInFlight: number
  #waiting: Entry<Item, Answer>[] = []
  /** An array, because a Set would keep batches alive that came and went. */
  readonly #inFlight: Batch<Item, Answer>[] = []
  #lastBatch = 0
  #isLeaving = false
  #isLeavingLater = false
  #pause: Timer | undefined
  #isClosed = false

  constructor(options: LaneOptions<Item, Answer>) {
    this.#options = options
    this.#maxInFlight = options.maxInFlight ?? 1
  }

  /** The answer as a promise. */
  ask(item: Item, call: Call): Promise<Answer> {
    return new Promise((answered, failed) => this.add(item, call, { answered, failed }))
  }

  add(item: Item, call: Call, asker: Asker<Answer>): void {
    const { backend, isPatient, gathersPerTurn } = this.#options
    if (this.#isClosed || call.cancelled) {
      asker.failed(
        this.#isClosed ? closed(backend, 'not-applied') : cancelledCall(backend, call.signal, 'not-applied'),
      )
      return
    }
    const entry: Entry<Item, Answer> = { item, asker, untie: ignore, batch: undefined, isSettled: false }
    entry.untie = call.onCancel(() => this.#cancelled(entry, call))
    this.#waiting.push(entry)
    const isIdle = this.#inFlight.length === 0
    if (this.#isLeaving || this.#pause !== undefined || !(isIdle || this.#hasRoom())) return
    const isGathered = gathersPerTurn === true && (this.#lastBatch > 1 || !isIdle)
    if (isGathered || isPatient?.(item) === true) this.#leaveLater()
    else {
      this.#isLeaving = true
      soon.then(this.#leaveTogether)
    }
  }

  /** Ends a pause, say because the engine is likely to be free again. */
  resume(): void {
    if (this.#pause === undefined) return
    this.#pause.cancel()
    this.#pause = undefined
    this.#leaveTogether()
  }

  /** Every request is settled at once, because answers may not come any more. */
  close(): void {
    this.#isClosed = true
    this.#pause?.cancel()
    const { backend } = this.#options
    for (const entry of this.#waiting.splice(0)) fail(entry, closed(backend, 'not-applied'))
    for (const batch of this.#inFlight.splice(0)) {
      for (const entry of batch.entries) fail(entry, closed(backend, 'unknown'))
      batch.grace?.cancel()
      batch.cancel(closed(backend, 'unknown'))
    }
  }

  #hasRoom(): boolean {
    if (this.#pause !== undefined) return false
    const { length } = this.#inFlight
    if (length === 0) return true
    const { freeInFlight = 1, minFurther = 1, isConnected } = this.#options
    if (length >= this.#maxInFlight || isConnected?.() === false) return false
    return length < freeInFlight || this.#waiting.length >= minFurther
  }

  #leaveLater(): void {
    if (this.#isLeavingLater) return
    this.#isLeavingLater = true
    afterThisTurn(() => {
      this.#isLeavingLater = false
      this.#leaveTogether()
    })
  }

  readonly #leaveTogether = (): void => {
    this.#isLeaving = false
    while (this.#waiting.length > 0) {
      const isIdle = this.#inFlight.length === 0 && this.#pause === undefined
      if (!isIdle && !this.#hasRoom()) return
      const [first] = this.#waiting
      const isAlone = isIdle && this.#waiting.length === 1 && first?.isSettled === false
      if (isAlone) this.#waiting = []
      const entries = isAlone ? [first] : this.#nextBatch()
      if (entries.length === 0) return
      const batch = new Batch(entries)
      this.#send(batch)
      if (this.#waiting.length === 0) return
      const isAnswered = !this.#inFlight.includes(batch)
      if (!isAnswered && this.#options.oneBatchPerTurn !== true) continue
      this.#isLeaving = true
      // An engine that answers at once lets other lanes come in between.
      if (isAnswered) soon.then(this.#leaveTogether)
      else afterThisTurn(this.#leaveTogether)
      return
    }
  }

  #nextBatch(): readonly Entry<Item, Answer>[] {
    const { keyOf } = this.#options
    const most = this.#share()
    const keys = new Set<string>()
    const leaving: Entry<Item, Answer>[] = []
    const staying: Entry<Item, Answer>[] = []
    for (const entry of this.#waiting) {
      if (entry.isSettled) continue
      const key = keyOf?.(entry.item)
      const isTwice = key !== undefined && keys.has(key)
      if (leaving.length === most || isTwice || this.#mustWait(entry.item)) staying.push(entry)
      else {
        leaving.push(entry)
        if (key !== undefined) keys.add(key)
      }
    }
    this.#waiting = staying
    return leaving
  }

  #mustWait(item: Item): boolean {
    const { nameOf, overtakes } = this.#options
    if (nameOf === undefined || this.#inFlight.length === 0 || overtakes?.(item) === true) return false
    return this.#inFlight.some((batch) => batch.names(nameOf).has(nameOf(item)))
  }

  /** Half of all that wait or are in flight, also when batches have come apart: a batch of few costs nearly as much as one of many. */
  #share(): number {
    const { maxBatch, minSplit = 2 } = this.#options
    let all = this.#waiting.length
    for (const { items } of this.#inFlight) all += items.length
    return Math.min(maxBatch, this.#maxInFlight > 1 && all >= minSplit ? Math.ceil(all / 2) : all)
  }

  #send(batch: Batch<Item, Answer>): void {
    this.#inFlight.push(batch)
    this.#lastBatch = batch.items.length
    try {
      const sent = this.#options.send(batch.items, batch)
      if (sent instanceof Promise)
        sent.then(
          (answers) => this.#answered(batch, answers, true),
          (error: unknown) => this.#failed(batch, error, true),
        )
      else this.#answered(batch, sent, false)
    } catch (error) {
      this.#failed(batch, error, false)
    }
  }

  /** There may be room again. Callers that were just answered may ask in this turn, too. */
  #goOn(): void {
    if (this.#options.gathersPerTurn === true) this.#leaveLater()
    else this.#leaveTogether()
  }

  #answered(batch: Batch<Item, Answer>, sent: Sent<Answer>, isLater: boolean): void {
    this.#over(batch)
    const { entries } = batch
    if (sent !== null && 'retryInMs' in sent) this.#retry(entries, sent.retryInMs)
    else
      for (let index = 0; index < entries.length; index++) {
        const entry = entries[index] as Entry<Item, Answer>
        const answer = sent?.[index]
        if (answer === undefined) fail(entry, this.#unanswered())
        else if (answer instanceof Error) fail(entry, answer)
        else if (settle(entry)) entry.asker.answered(answer)
      }
    if (isLater && this.#waiting.length > 0) this.#goOn()
  }

  #unanswered(): Error {
    return new BackendUnavailableError(
      this.#options.backend,
      'the batch came back with too few answers',
      'unknown',
    )
  }

  #retry(entries: readonly Entry<Item, Answer>[], inMs: number): void {
    const unsent = entries.filter(({ isSettled }) => !isSettled)
    for (const entry of unsent) entry.batch = undefined
    this.#waiting = [...unsent, ...this.#waiting]
    if (this.#waiting.length === 0) return
    // Callers wait for it, so the process stays alive for it.
    this.#pause = this.#options.clock.setTimer(inMs, () => this.resume(), { keepsProcessAlive: true })
  }

  #failed(batch: Batch<Item, Answer>, error: unknown, isLater: boolean): void {
    this.#over(batch)
    for (const entry of batch.entries) fail(entry, error)
    if (isLater && this.#waiting.length > 0) this.#goOn()
  }

  #over(batch: Batch<Item, Answer>): void {
    batch.grace?.cancel()
    const index = this.#inFlight.indexOf(batch)
    if (index >= 0) this.#inFlight.splice(index, 1)
  }

  #cancelled(entry: Entry<Item, Answer>, { signal }: Call): void {
    const { batch } = entry
    fail(entry, cancelledCall(this.#options.backend, signal, batch === undefined ? 'not-applied' : 'unknown'))
    if (batch !== undefined && --batch.present === 0) this.#waitForLate(batch, signal.reason)
  }

  #waitForLate(batch: Batch<Item, Answer>, reason: unknown): void {
    batch.grace = this.#options.clock.setTimer(GRACE_MS, () => {
      if (this.#options.isConnected?.() === false) {
        this.#waitForLate(batch, reason)
        return
      }
      this.#over(batch)
      batch.cancel(reason)
      this.#leaveTogether()
    })
  }
}

function settle(entry: Entry<unknown, never>): boolean {
  if (entry.isSettled) return false
  entry.isSettled = true
  entry.untie()
  return true
}

function fail(entry: Entry<unknown, never>, error: unknown): void {
  if (settle(entry)) entry.asker.failed(error)
}

function closed(backend: string, outcome: CallOutcome): BackendUnavailableError {
  return new BackendUnavailableError(backend, 'it was closed', outcome)
}
