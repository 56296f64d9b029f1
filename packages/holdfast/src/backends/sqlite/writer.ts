/**
 * The way to the file for everything that changes it: requests leave together in one transaction, each with its own
 * answer. Inside a transaction everything is synchronous, so nothing of this process comes in between.
 *
 *   begin ──▶ the work of all ──▶ commit ──▶ what follows from it ──▶ answers
 *   begin: the write lock is taken              nothing was done: a few tries at once, then after a pause
 *   work: one refuses                           it alone is told so
 *   work: the tokens are used up                undone, tokens reserved, done again
 *   work: anything else fails                   undone: not applied, for all of them
 *   commit fails                                unknown, for all of them
 */
import type { Clock } from '../../base/clock.ts'
import { ClosedError, isHoldfastError } from '../../base/errors.ts'
import type { Random } from '../../base/ids.ts'
import { Lane, type Sent } from '../../kit/lane.ts'
import type { Call } from '../../spi.ts'
import type { Database } from './database.ts'
import { isBusy, unavailable } from './failures.ts'
import type { Statements } from './statements.ts'
import { reserveTokens, TokensUsedUp } from './tokens.ts'
import { Transaction } from './transaction.ts'

/** A step of a transaction. It may refuse with a HoldfastError, for itself alone, as long as it has written nothing. */
export type Work<T> = (tx: Transaction) => T

export interface WriterOptions {
  readonly database: Database
  readonly sql: Statements
  readonly clock: Clock
  readonly random: Random
  /** Told of every transaction once it has committed, before any request is answered. */
  readonly onCommitted: (tx: Transaction) => void
  /**
   * Lets the event loop turn. The file answers without that, so a caller in a loop would keep all timers and sockets of
   * the process from their turn, renewals among them.
   */
  readonly giveWay: () => Promise<void>
}

/** What one transaction takes on at most: it holds the write lock and the event loop for a few milliseconds then. */
const MAX_BATCH = 256
/** Other processes' transactions are short: within this many tries, some 50 µs, most of them are over. */
const TRIES_AT_ONCE = 4
const SHORTEST_PAUSE_MS = 1
const LONGEST_PAUSE_MS = 10
/** Long enough that giving way costs nothing, short compared with any TTL. */
const LONGEST_TURN_MS = 20

type WorkLane = Lane<Work<unknown>, Done>

/** What a step returned; in an object, because it may have returned nothing. */
interface Done {
  readonly value: unknown
}

export class Writer {
  readonly #options: WriterOptions
  readonly #lane: WorkLane
  readonly #fastLane: WorkLane
  #tokensUsedUp = false
  #closed = false
  /** For how long the event loop has been blocked since it last turned. */
  #workedMs = 0
  #pauses = 0

  constructor(options: WriterOptions) {
    this.#options = options
    this.#lane = this.#openLane()
    this.#fastLane = this.#openLane()
  }

  write<T>(call: Call, work: Work<T>): Promise<T> {
    return ask(this.#lane, call, work)
  }

  /** Overtakes what waits: a backlog of new requests must not cost the leases that are there. */
  writeFirst<T>(call: Call, work: Work<T>): Promise<T> {
    return ask(this.#fastLane, call, work)
  }

  /** What waits is refused now. */
  close(): void {
    this.#closed = true
    this.#lane.resume()
    this.#fastLane.resume()
  }

  #openLane(): WorkLane {
    const { clock, giveWay } = this.#options
    return new Lane({
      backend: 'sqlite',
      clock,
      maxBatch: MAX_BATCH,
      send: (steps) => {
        if (this.#workedMs <= LONGEST_TURN_MS) return this.#tryToRun(steps)
        this.#workedMs = 0
        return giveWay().then(() => this.#tryToRun(steps))
      },
    })
  }

  #tryToRun(steps: readonly Work<unknown>[]): Sent<Done> {
    const { clock, random } = this.#options
    for (let tries = 0; tries < TRIES_AT_ONCE; tries++) {
      const beganMs = clock.monotonicMs()
      const answers = this.#run(steps)
      this.#workedMs += clock.monotonicMs() - beganMs
      if (answers === null) continue
      this.#pauses = 0
      return answers
    }
    const longestMs = Math.min(LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS * 2 ** Math.min(++this.#pauses, 10))
    return { retryInMs: SHORTEST_PAUSE_MS + longestMs * random.fraction() }
  }

  /** Null: another process has the write lock, and nothing was done. */
  #run(steps: readonly Work<unknown>[]): readonly (Done | Error)[] | null {
    if (this.#closed) return steps.map(() => new ClosedError('The sqlite backend'))
    const { database, sql, clock, onCommitted } = this.#options
    let tx: Transaction
    let answers: readonly (Done | Error)[]
    let committing = false
    try {
      if (this.#tokensUsedUp && !reserveTokens(database, sql)) return null
      this.#tokensUsedUp = false
      if (!database.begin()) return null
      const open = new Transaction(sql, clock.monotonicMs())
      tx = open
      answers = steps.map((step) => perform(step, open))
      tx.beforeCommit()
      committing = true
      database.commit()
    } catch (error) {
      database.rollBack()
      if (error instanceof TokensUsedUp) {
        this.#tokensUsedUp = true
        return this.#run(steps)
      }
      // A commit that found the file busy is undone; after any other failure the disk may know it all the same.
      const outcome = committing && !isBusy(error) ? 'unknown' : 'not-applied'
      const failure = unavailable('the file could not be written', outcome, error)
      return steps.map(() => failure)
    }
    tx.committed()
    onCommitted(tx)
    return answers
  }
}

function ask<T>(lane: WorkLane, call: Call, work: Work<T>): Promise<T> {
  return new Promise((resolve, failed) => {
    lane.add(work, call, { answered: ({ value }) => resolve(value as T), failed })
  })
}

function perform(step: Work<unknown>, tx: Transaction): Done | Error {
  try {
    return { value: step(tx) }
  } catch (error) {
    if (!isHoldfastError(error)) throw error
    return error
  }
}
