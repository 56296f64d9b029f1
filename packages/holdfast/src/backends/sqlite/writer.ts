/**
 * The way to the file for everything that changes it: requests leave together in one transaction, each with its own
 * answer. Inside a transaction everything is synchronous, so nothing of this process comes in between.
 *
 *   begin ──▶ the work of all ──▶ commit ──▶ what follows from it ──▶ answers
 *   begin: the write lock is taken              nothing was done                        [Lane tries again]
 *   work: one refuses                           it alone is told so
 *   work: the tokens are used up                undone, tokens reserved, done again
 *   work: anything else fails                   undone: not applied, for all of them
 *   commit fails                                unknown, for all of them
 */
import { ClosedError, isHoldfastError } from '../../base/errors.ts'
import type { Database } from './database.ts'
import { isBusy, unavailable } from './failures.ts'
import { fail, type Item, Lane, type LaneOptions, settle, type Work } from './lane.ts'
import type { Statements } from './statements.ts'
import { reserveTokens, TokensUsedUp } from './tokens.ts'
import { Transaction } from './transaction.ts'

export interface WriterOptions extends Omit<LaneOptions, 'run'> {
  readonly database: Database
  readonly sql: Statements
  /** Told of every transaction once it has committed, before anybody is answered. */
  readonly onCommitted: (tx: Transaction) => void
}

export class Writer {
  readonly #options: WriterOptions
  readonly #lane: Lane
  readonly #fastLane: Lane
  #tokensUsedUp = false
  #closed = false

  constructor(options: WriterOptions) {
    this.#options = options
    const run = (items: readonly Item[]) => this.#run(items)
    this.#lane = new Lane({ ...options, run })
    this.#fastLane = new Lane({ ...options, run })
  }

  write<T>(signal: AbortSignal, work: Work<T>): Promise<T> {
    return this.#lane.add(signal, work)
  }

  /** Overtakes what waits: a backlog of new requests must not cost the leases that are there. */
  writeFirst<T>(signal: AbortSignal, work: Work<T>): Promise<T> {
    return this.#fastLane.add(signal, work)
  }

  close(): void {
    this.#closed = true
    this.#lane.close()
    this.#fastLane.close()
  }

  #run(items: readonly Item[]): boolean {
    if (this.#closed) return failAll(items, new ClosedError('The sqlite backend'))
    const { database, sql, clock, onCommitted } = this.#options
    let tx: Transaction
    let committing = false
    try {
      if (this.#tokensUsedUp && !reserveTokens(database, sql)) return false
      this.#tokensUsedUp = false
      if (!database.begin()) return false
      tx = new Transaction(sql, clock.monotonicMs())
      for (const item of items) perform(item, tx)
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
      return failAll(items, unavailable('the file could not be written', outcome, error))
    }
    tx.committed()
    onCommitted(tx)
    for (const item of items) settle(item)
    return true
  }
}

/** The answer is kept until the commit. */
function perform(item: Item, tx: Transaction): void {
  try {
    item.outcome = { ok: true, answer: item.work(tx) }
  } catch (error) {
    if (!isHoldfastError(error)) throw error
    item.outcome = { ok: false, error }
  }
}

function failAll(items: readonly Item[], error: unknown): true {
  for (const item of items) fail(item, error)
  return true
}
