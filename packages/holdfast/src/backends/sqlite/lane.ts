/**
 * Where requests stand until a transaction takes them along, as many as there are. Nobody waits for company, and
 * nobody blocks the event loop for another process: whoever finds the write lock taken goes on later.
 *
 *   waiting ──run──▶ answered                           one by one, by whoever runs them
 *   waiting ──write lock is taken──▶ waiting            tried again, a few times at once, then by timer
 *   waiting ──signal aborts──▶ answered: not applied    it is certain not to have landed
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Random } from '../../base/ids.ts'
import { Coalescer } from '../../kit/coalescer.ts'
import { unavailable } from './failures.ts'
import type { Transaction } from './transaction.ts'

/** A step of a transaction. It may refuse with a HoldfastError, for itself alone, as long as it has written nothing. */
export type Work<T> = (tx: Transaction) => T

export interface Item {
  readonly work: Work<unknown>
  readonly signal: AbortSignal
  readonly resolve: (answer: never) => void
  readonly reject: (error: unknown) => void
  settled: boolean
  /** Its answer, while it waits for the commit. */
  outcome:
    | { readonly ok: true; readonly answer: unknown }
    | { readonly ok: false; readonly error: unknown }
    | undefined
  stopListening: (() => void) | undefined
}

export interface LaneOptions {
  /** False: the write lock is another's, and nothing was done. Otherwise all of them have been settled. */
  readonly run: (items: readonly Item[]) => boolean
  /**
   * Lets the event loop turn. The file answers without that, so a caller in a loop would keep all timers and sockets of
   * the process from their turn, renewals among them.
   */
  readonly giveWay: () => Promise<void>
  readonly clock: Clock
  readonly random: Random
}

/** What one transaction takes on at most: it holds the write lock and the event loop for a few milliseconds then. */
const MAX_BATCH = 256
/** Others' transactions are short: within this many tries, some 50 µs, most of them are over. */
const TRIES_AT_ONCE = 4
const SHORTEST_PAUSE_MS = 1
/** Long enough that giving way costs nothing, short compared with any TTL. */
const LONGEST_TURN_MS = 20
const LONGEST_PAUSE_MS = 10

const settledByItself = { ok: true, answer: null } as const

export class Lane {
  readonly #options: LaneOptions
  readonly #coalescer: Coalescer<Item, null>
  /** Whether items wait for the write lock, which is another's. */
  #stalled = false
  #endPause: (() => void) | undefined
  /** How long it has blocked the event loop since it last gave way. */
  #workedMs = 0

  constructor(options: LaneOptions) {
    this.#options = options
    this.#coalescer = new Coalescer((items) => this.#send(items), { maxBatch: MAX_BATCH })
  }

  /** Answers with what `work` returns, once it has been committed. */
  add<T>(signal: AbortSignal, work: Work<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const item: Item = {
        work,
        signal,
        resolve: resolve as Item['resolve'],
        reject,
        settled: false,
        outcome: undefined,
        stopListening: undefined,
      }
      if (this.#stalled) this.#listen(item)
      // Every item is settled on its own; this is for errors that nobody has foreseen.
      this.#coalescer.add(item).catch((error: unknown) => fail(item, error))
    })
  }

  /** What waits is run once more, now; whoever closes sees to it that it is refused. */
  close(): void {
    this.#endPause?.()
  }

  async #send(items: readonly Item[]): Promise<(typeof settledByItself)[]> {
    if (this.#workedMs > LONGEST_TURN_MS) {
      this.#workedMs = 0
      await this.#options.giveWay()
    }
    for (let tries = 1; ; tries++) {
      const waiting = items.some(isSettled) ? items.filter((item) => !item.settled) : items
      if (waiting.length === 0 || this.#runTimed(waiting)) break
      if (tries % TRIES_AT_ONCE !== 0) continue
      if (!this.#stalled) for (const item of waiting) this.#listen(item)
      this.#stalled = true
      await this.#pause(SHORTEST_PAUSE_MS + this.#jitterMs(tries / TRIES_AT_ONCE))
    }
    this.#stalled = false
    return items.map(() => settledByItself)
  }

  /** Runs them, and keeps count of the time that it takes. */
  #runTimed(items: readonly Item[]): boolean {
    const beganMs = this.#options.clock.monotonicMs()
    const done = this.#options.run(items)
    this.#workedMs += this.#options.clock.monotonicMs() - beganMs
    return done
  }

  #listen(item: Item): void {
    const { signal } = item
    const onAbort = () => {
      fail(item, unavailable('cancelled while another process was writing', 'not-applied', signal.reason))
    }
    signal.addEventListener('abort', onAbort, { once: true })
    item.stopListening = () => signal.removeEventListener('abort', onAbort)
  }

  /** Somebody waits for the answer, so the process stays alive for it. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        timer.cancel()
        this.#endPause = undefined
        resolve()
      }
      const timer: Timer = this.#options.clock.setTimer(ms, end, { keepsProcessAlive: true })
      this.#endPause = end
    })
  }

  #jitterMs(times: number): number {
    const longestMs = Math.min(LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS * 2 ** Math.min(times, 10))
    return longestMs * this.#options.random.fraction()
  }
}

function isSettled(item: Item): boolean {
  return item.settled
}

/** Tells an item what has become of it, unless it has been told already. */
export function settle(item: Item): void {
  if (item.settled) return
  item.settled = true
  item.stopListening?.()
  const { outcome } = item
  if (outcome?.ok) item.resolve(outcome.answer as never)
  else item.reject(outcome?.error)
}

export function fail(item: Item, error: unknown): void {
  item.outcome = { ok: false, error }
  settle(item)
}
