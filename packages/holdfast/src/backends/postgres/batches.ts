/**
 * Requests on claims leave together: one call with arrays for all that have gathered while others were in flight. Two
 * calls may be in flight, so that the server works while the client does; who comes first, the names decide. Many who
 * are there at once leave in two halves, which take turns.
 *
 *   waiting ──room for a call──▶ in flight ──answered──▶ settled
 *   waiting ──signal aborts──▶ settled: not applied
 *   in flight ──signal aborts──▶ settled: unknown; when no caller is left in the batch, it has GRACE_MS to be answered
 *
 * A call that is cancelled costs its connection, and a new one costs more than the answer. If callers with short waits
 * cancelled theirs at once, none of them would be answered in time again.
 *
 * A single request never waits for company: while there is room for a call, it leaves at the end of the microtask. It is
 * told directly, because promises in between cost as much as all the rest of an uncontended request.
 */

import { afterThisTurn, type Clock, type Timer } from '../../base/clock.ts'
import { BackendUnavailableError } from '../../base/errors.ts'
import { arrayLiteral, type Parameter, type Row } from '../../clients/postgres/index.ts'
import { cancelledCall } from '../../kit/backend-kit.ts'

export type Operation = 't' | 'q' | 'r' | 'a' | 'd'

/** One request; see `sql/claims.ts` for what the operations are and which of the fields they use. */
export interface Item {
  readonly op: Operation
  readonly name: string
  readonly attempt: string
  readonly session: number
  readonly mode?: string
  readonly weight?: number
  readonly capacity?: number
  readonly ms?: number
  readonly text?: string | undefined
  readonly owner?: string | undefined
  readonly maxWaiters?: number | undefined
  readonly waitMs?: number | undefined
  /** The grant that a release or `setData` is about. */
  readonly token?: string
}

export interface Answer {
  readonly kind: string
  readonly token: string | null
  readonly data: string | null
  readonly ms: number | null
}

/** A waiter of this process to whom the batch handed a name; without a token, one who should look. */
export interface Handed {
  readonly session: number
  readonly attempt: string
  readonly token: string | null
  readonly data: string | null
}

/** `apply` for several items; `take` and `giveBack` for one that is alone. */
export type BatchStatement = 'apply' | 'take' | 'giveBack'

export interface BatchesOptions {
  readonly call: (
    statement: BatchStatement,
    parameters: readonly Parameter[],
    signal: AbortSignal,
  ) => Promise<readonly Row[]>
  readonly onHanded: (handed: Handed) => void
  readonly clock: Clock
}

/** Each name of a batch takes a place in the server's lock table, which has some thousands for everybody. */
const MAX_BATCH = 128
const MOST_IN_FLIGHT = 2
/** Fewer than these who come together leave together: two small calls cost more than one. */
const WORTH_TWO_CALLS = 8

/** For the answer to a call that no caller waits for. Much longer than an answer takes, unless a lock is stuck. */
const GRACE_MS = 1_000

/** A microtask without what Node's queueMicrotask adds to each. */
const soon = Promise.resolve()

class Entry {
  readonly item: Item
  readonly #signal: AbortSignal
  readonly #resolve: (answer: Answer) => void
  readonly #reject: (error: unknown) => void
  /** Once it has left. */
  batch: Batch | undefined
  isSettled = false

  constructor(
    item: Item,
    signal: AbortSignal,
    resolve: (answer: Answer) => void,
    reject: (error: unknown) => void,
  ) {
    this.item = item
    this.#signal = signal
    this.#resolve = resolve
    this.#reject = reject
    signal.addEventListener('abort', this.#onAbort, { once: true })
  }

  answer(answer: Answer): void {
    if (this.#settle()) this.#resolve(answer)
  }

  fail(error: unknown): void {
    if (this.#settle()) this.#reject(error)
  }

  #settle(): boolean {
    if (this.isSettled) return false
    this.isSettled = true
    this.#signal.removeEventListener('abort', this.#onAbort)
    return true
  }

  readonly #onAbort = (): void => {
    const { batch } = this
    this.fail(cancelledCall('postgres', this.#signal, batch === undefined ? 'not-applied' : 'unknown'))
    if (batch === undefined) return
    batch.leave(this.#signal.reason)
  }
}

/** One call, and how many callers still wait for it. */
class Batch {
  readonly #controller = new AbortController()
  readonly #clock: Clock
  readonly #entries: readonly Entry[]
  #names: ReadonlySet<string> | undefined
  #present: number
  #grace: Timer | undefined

  constructor(clock: Clock, entries: readonly Entry[]) {
    this.#clock = clock
    this.#entries = entries
    this.#present = entries.length
    for (const entry of entries) entry.batch = this
  }

  hasName(name: string): boolean {
    this.#names ??= new Set(this.#entries.map(({ item }) => item.name))
    return this.#names.has(name)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  leave(reason: unknown): void {
    if (--this.#present > 0) return
    this.#grace = this.#clock.setTimer(GRACE_MS, () => this.#controller.abort(reason))
  }

  /** Cancels it, unless a caller waits for it. */
  close(reason: unknown): void {
    if (this.#present === 0) this.#controller.abort(reason)
  }

  done(): void {
    this.#grace?.cancel()
  }
}

export class Batches {
  readonly #options: BatchesOptions
  #waiting: Entry[] = []
  #inFlight = 0
  /** How many entries those calls have. */
  #onTheWay = 0
  #isGathering = false
  #isAbandoning = false
  readonly #batches = new Set<Batch>()

  constructor(options: BatchesOptions) {
    this.#options = options
  }

  /** Whoever calls has seen that the signal is not aborted yet. */
  add(item: Item, signal: AbortSignal): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => {
      // Those who were cancelled do not leave; they go when the next call does.
      this.#waiting.push(new Entry(item, signal, resolve, reject))
      if (this.#isGathering || this.#inFlight === MOST_IN_FLIGHT) return
      if (item.op !== 'a') {
        this.#isGathering = true
        soon.then(this.#leaveTogether)
      } else if (!this.#isAbandoning) {
        // A caller that gave up often tries again at once: then both leave together.
        this.#isAbandoning = true
        afterThisTurn(() => {
          this.#isAbandoning = false
          this.#leaveTogether()
        })
      }
    })
  }

  /** Cancels the calls that no caller waits for. */
  close(reason: unknown): void {
    for (const batch of this.#batches) batch.close(reason)
  }

  readonly #leaveTogether = (): void => {
    this.#isGathering = false
    while (this.#waiting.length > 0 && this.#inFlight < MOST_IN_FLIGHT) {
      const entries = this.#nextBatch()
      if (entries.length === 0) return
      this.#inFlight++
      this.#onTheWay += entries.length
      this.#send(entries).then(() => {
        this.#inFlight--
        this.#onTheWay -= entries.length
        this.#leaveTogether()
      })
    }
  }

  /** An attempt is asked about once in a call; who asks the same twice at once gets an answer each, one after the other. */
  #nextBatch(): readonly Entry[] {
    const present = this.#waiting.filter(({ isSettled }) => !isSettled)
    const waiting = this.#batches.size === 0 ? present : present.filter(({ item }) => !this.#mustWait(item))
    // Half of all, also when they have come apart: a call with few costs nearly as much as one with many.
    const all = waiting.length + this.#onTheWay
    const most = Math.min(MAX_BATCH, all >= WORTH_TWO_CALLS ? Math.ceil(all / MOST_IN_FLIGHT) : all)
    if (present.length === 1 && waiting.length === 1) {
      this.#waiting = []
      return waiting
    }
    const keys = new Set<string>()
    const leaving: Entry[] = []
    const staying: Entry[] = waiting === present ? [] : present.filter(({ item }) => this.#mustWait(item))
    for (const entry of waiting) {
      const key = keyOf(entry.item.op, entry.item.attempt)
      if (leaving.length === most || keys.has(key)) staying.push(entry)
      else {
        keys.add(key)
        leaving.push(entry)
      }
    }
    this.#waiting = staying
    return leaving
  }

  /**
   * A second call about a name would only wait for its lock at the server, behind the first and in the way of other
   * processes. Here it can still be cancelled. A release goes at once: others wait for it.
   */
  #mustWait({ op, name }: Item): boolean {
    if (op === 'r') return false
    for (const batch of this.#batches) if (batch.hasName(name)) return true
    return false
  }

  /** Never rejects. */
  async #send(entries: readonly Entry[]): Promise<void> {
    const batch = new Batch(this.#options.clock, entries)
    const { signal } = batch
    this.#batches.add(batch)
    try {
      const [alone] = entries
      const single = entries.length === 1 && alone !== undefined ? singleCall(alone.item) : null
      if (single !== null && alone !== undefined) {
        const [row] = await this.#options.call(single[0], single[1], signal)
        const answer = answerOfSingle(String(row?.[0]))
        if (answer !== null) return alone.answer(answer)
        this.#settle(entries, JSON.parse(String(row?.[0])) as Row[])
      } else {
        const parameters = parametersOf(entries.map(({ item }) => item))
        this.#settle(entries, await this.#options.call('apply', parameters, signal))
      }
    } catch (error) {
      for (const entry of entries) entry.fail(error)
    } finally {
      batch.done()
      this.#batches.delete(batch)
    }
  }

  #settle(entries: readonly Entry[], rows: readonly Row[]): void {
    const byKey = new Map<string, Answer>()
    const handed: Handed[] = []
    for (const [op, attempt, kind, token, data, ms, session] of rows as readonly AnswerRow[]) {
      if (op === 'h') handed.push({ session: Number(session), attempt, token, data })
      else byKey.set(`${op}${attempt}`, { kind, token, data, ms: ms === null ? null : Number(ms) })
    }
    for (const each of handed) this.#options.onHanded(each)
    for (const entry of entries) {
      const answer = byKey.get(keyOf(entry.item.op, entry.item.attempt))
      if (answer === undefined) entry.fail(missing)
      else entry.answer(answer)
    }
  }
}

type AnswerRow = readonly [string, string, string, string | null, string | null, unknown, unknown]

const missing = new BackendUnavailableError(
  'postgres',
  'the answer to a batch lacks one of its items',
  'unknown',
)

/** A try and a wait are both answered as an acquire. */
function keyOf(op: Operation, attempt: string): string {
  return `${op === 't' || op === 'q' ? 'g' : op}${attempt}`
}

/** Null: there is no shorter way for it. */
function singleCall(item: Item): readonly [BatchStatement, readonly Parameter[]] | null {
  const { op, name, attempt, session, mode, weight, capacity, ms = 0, text = null, token = null } = item
  const { owner = null, maxWaiters = null, waitMs = null } = item
  if (op === 'r') return ['giveBack', [name, attempt, session, ms, token]]
  if (op !== 't' && op !== 'q') return null
  const wanted = [mode ?? null, weight ?? null, capacity ?? null, ms, text, owner, maxWaiters, waitMs]
  return ['take', [op, name, attempt, session, ...wanted]]
}

const RELEASED: Answer = { kind: 'released', token: null, data: null, ms: null }

/** Null: it is one with rows. See `sql/single.ts`. */
function answerOfSingle(answer: string): Answer | null {
  if (answer === '-') return RELEASED
  if (!answer.startsWith('+')) return null
  const end = answer.indexOf(' ')
  const token = end === -1 ? answer.slice(1) : answer.slice(1, end)
  const data = end === -1 ? null : answer.slice(end + 1)
  return { kind: 'granted', token, data, ms: null }
}

function parametersOf(items: readonly Item[]): readonly Parameter[] {
  const column = (read: (item: Item) => string | number | undefined) => arrayLiteral(items.map(read))
  const rareColumn = (read: (item: Item) => string | number | undefined) =>
    items.some((item) => read(item) !== undefined) ? column(read) : null
  return [
    column(({ op }) => op),
    column(({ name }) => name),
    column(({ attempt }) => attempt),
    column(({ session }) => session),
    // One column, as in version 1: an acquire has a mode, and a release or `setData` a token.
    column(({ mode, token }) => mode ?? token),
    column(({ weight }) => weight),
    column(({ capacity }) => capacity),
    column(({ ms }) => ms),
    column(({ text }) => text),
    rareColumn(({ owner }) => owner),
    rareColumn(({ maxWaiters }) => maxWaiters),
    rareColumn(({ waitMs }) => waitMs),
  ]
}
