/**
 * The way to the file for everything that changes it. Requests that come while others are under way leave together in
 * one transaction, each with its own answer.
 *
 *   waiting ──begin──▶ in a transaction ──commit──▶ answered
 *   waiting ──write lock is taken──▶ waiting            tried again, a few times at once, then by timer
 *   waiting ──signal aborts, backend closes──▶ answered: not applied
 *   in a transaction ──tokens are used up──▶ waiting    undone, tokens reserved, tried again
 *   in a transaction ──error──▶ answered: not applied   undone
 *   in a transaction ──commit fails──▶ answered: unknown
 *
 * Inside a transaction everything is synchronous, so nothing of this process comes in between. The event loop is
 * never blocked for another process: whoever finds the write lock taken goes on later.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import { Coalescer } from '../../core/coalescer.ts'
import { ClosedError, isHoldfastError } from '../../core/errors.ts'
import type { Random } from '../../core/ids.ts'
import type { Database } from './database.ts'
import { isBusy, unavailable } from './failures.ts'
import type { Statements } from './statements.ts'
import { reserveTokens, TokensUsedUp } from './tokens.ts'
import { Transaction } from './transaction.ts'

/** A step of a transaction. It may refuse with a HoldfastError, for itself alone, as long as it has written nothing. */
export type Work<T> = (tx: Transaction) => T

interface Item {
  readonly work: Work<unknown>
  readonly signal: AbortSignal
  readonly resolve: (answer: never) => void
  readonly reject: (error: unknown) => void
  settled: boolean
  stopListening?: () => void
}

export interface WriterOptions {
  readonly database: Database
  readonly sql: Statements
  readonly clock: Clock
  readonly random: Random
  /** Told of every transaction once it has committed, before anybody is answered. */
  readonly onCommitted: (tx: Transaction) => void
}

/** What one transaction may take on, so that it holds the write lock and the event loop for a few milliseconds. */
const MAX_BATCH = 256
/** Others' transactions are short: within this many tries, some 50 µs, most of them are over. */
const TRIES_AT_ONCE = 4
const SHORTEST_PAUSE_MS = 1
const LONGEST_PAUSE_MS = 10

export class Writer {
  readonly #options: WriterOptions
  readonly #coalescer: Coalescer<Item, null>
  /** Items of this process that wait for the write lock, while it is another's. */
  #stalled = false
  #endPause: (() => void) | undefined
  #tokensUsedUp = false
  #closed = false

  constructor(options: WriterOptions) {
    this.#options = options
    this.#coalescer = new Coalescer((items) => this.#send(items), { maxBatch: MAX_BATCH })
  }

  /** Answers with what `work` returns, once it has been committed. */
  write<T>(signal: AbortSignal, work: Work<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const item: Item = { work, signal, resolve: resolve as Item['resolve'], reject, settled: false }
      if (this.#stalled) this.#listen(item)
      void this.#coalescer.add(item)
    })
  }

  close(): void {
    this.#closed = true
    this.#endPause?.()
  }

  async #send(items: readonly Item[]): Promise<{ ok: true; answer: null }[]> {
    for (let tries = 1; ; tries++) {
      const waiting = items.filter((item) => !item.settled)
      if (waiting.length === 0 || this.#run(waiting)) break
      if (tries % TRIES_AT_ONCE !== 0) continue
      if (!this.#stalled) for (const item of waiting) this.#listen(item)
      this.#stalled = true
      await this.#pause(tries / TRIES_AT_ONCE)
    }
    this.#stalled = false
    return items.map(() => ({ ok: true, answer: null }))
  }

  /** False: busy, nothing was done. */
  #run(items: readonly Item[]): boolean {
    if (this.#closed) return settleAll(items, new ClosedError('The sqlite backend'))
    const { database, sql, clock, onCommitted } = this.#options
    let tx: Transaction
    let answers: (() => void)[]
    let committing = false
    try {
      if (this.#tokensUsedUp && !reserveTokens(database, sql)) return false
      this.#tokensUsedUp = false
      if (!database.begin()) return false
      tx = new Transaction(sql, clock.monotonicMs())
      answers = perform(items, tx)
      tx.beforeCommit()
      committing = true
      database.commit()
    } catch (error) {
      database.rollBack()
      if (error instanceof TokensUsedUp) {
        this.#tokensUsedUp = true
        return this.#run(items)
      }
      // A commit that found the file busy is undone; after any other failure the disk may know it all the same.
      const outcome = committing && !isBusy(error) ? 'unknown' : 'not-applied'
      return settleAll(items, unavailable('the file could not be written', outcome, error))
    }
    tx.committed()
    onCommitted(tx)
    for (const answer of answers) answer()
    return true
  }

  /** While the write lock is another's, an item can be called off; it is certain not to have landed. */
  #listen(item: Item): void {
    const { signal } = item
    const onAbort = () => {
      settle(item, () =>
        item.reject(unavailable('called off while another process was writing', 'not-applied', signal.reason)),
      )
    }
    signal.addEventListener('abort', onAbort, { once: true })
    item.stopListening = () => signal.removeEventListener('abort', onAbort)
  }

  /** Somebody waits for the answer, so the process stays alive for it. */
  #pause(times: number): Promise<void> {
    const { clock, random } = this.#options
    const longestMs = Math.min(LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS * 2 ** Math.min(times, 10))
    return new Promise((resolve) => {
      let timer: Timer | undefined
      const end = () => {
        timer?.cancel()
        this.#endPause = undefined
        resolve()
      }
      timer = clock.setTimer(SHORTEST_PAUSE_MS + random.fraction() * longestMs, end, { keepsProcessAlive: true })
      this.#endPause = end
    })
  }
}

/** Does the work of all; what is returned gives each its answer, to be called after the commit. */
function perform(items: readonly Item[], tx: Transaction): (() => void)[] {
  return items.map((item) => {
    try {
      const answer = item.work(tx)
      return () => settle(item, () => item.resolve(answer as never))
    } catch (error) {
      if (!isHoldfastError(error)) throw error
      return () => settle(item, () => item.reject(error))
    }
  })
}

function settle(item: Item, answer: () => void): void {
  if (item.settled) return
  item.settled = true
  item.stopListening?.()
  answer()
}

function settleAll(items: readonly Item[], error: unknown): true {
  for (const item of items) settle(item, () => item.reject(error))
  return true
}
