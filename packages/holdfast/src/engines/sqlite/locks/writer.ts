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
import { afterThisTurn } from '../../../base/clock.ts'
import { ClosedError, isHoldfastError } from '../../../base/errors.ts'
import { growingPauseMs } from '../../../base/pauses.ts'
import { type Asker, Lane, type Sent } from '../../../kit/lane.ts'
import type { Done } from '../../../kit/step-session.ts'
import type { Call } from '../../../spi.ts'
import { isBusy } from '../client/index.ts'
import type { Context } from './connection.ts'
import { unavailable } from './failures.ts'
import { reserveTokens, TokensUsedUp } from './tokens.ts'
import { Transaction } from './transaction.ts'

/** A step of a transaction. It may refuse with a HoldfastError, for itself alone, as long as it has written nothing. */
export type Work<T> = (tx: Transaction) => T

type WriterContext = Pick<Context, 'database' | 'sql' | 'clock' | 'random'>

/** The most requests of one transaction: it holds the write lock and the event loop for a few milliseconds then. */
const MAX_BATCH = 256
/** Other processes' transactions are short: within this many tries, some 50 µs, most of them are over. */
const TRIES_AT_ONCE = 4
const PAUSE = { firstMs: 1, longestMs: 10 }
/** Long enough that giving way costs nothing, short compared with any TTL. */
const LONGEST_TURN_MS = 20

type WorkLane = Lane<Work<unknown>, Done>

export class Writer {
  readonly #context: WriterContext
  readonly #onCommitted: (tx: Transaction) => void
  readonly #lane: WorkLane
  readonly #fastLane: WorkLane
  #tokensUsedUp = false
  #closed = false
  /** For how long the event loop has been blocked since it last turned. */
  #workedMs = 0
  #pauses = 0

  /** `onCommitted` is told of every transaction once it has committed, before any request is answered. */
  constructor(context: WriterContext, onCommitted: (tx: Transaction) => void) {
    this.#context = context
    this.#onCommitted = onCommitted
    this.#lane = this.#openLane()
    this.#fastLane = this.#openLane()
  }

  /** The asker is told without a promise in between. */
  send<T>(call: Call, work: Work<T>, asker: Asker<Done<T>>): void {
    this.#lane.add(work, call, asker as Asker<Done>)
  }

  async write<T>(call: Call, work: Work<T>): Promise<T> {
    return (await this.#lane.ask(work, call)).value as T
  }

  /** Overtakes what waits: a backlog of new requests must not cost the leases that are there. */
  async writeFirst<T>(call: Call, work: Work<T>): Promise<T> {
    return (await this.#fastLane.ask(work, call)).value as T
  }

  /** Waiting requests are refused now. */
  close(): void {
    this.#closed = true
    this.#lane.resume()
    this.#fastLane.resume()
  }

  #openLane(): WorkLane {
    return new Lane({
      backend: 'sqlite',
      clock: this.#context.clock,
      maxBatch: MAX_BATCH,
      send: (steps) => {
        if (this.#workedMs <= LONGEST_TURN_MS) return this.#tryToRun(steps)
        // A caller in a loop would otherwise keep all timers and sockets of the process waiting, renewals among them.
        this.#workedMs = 0
        return new Promise<void>(afterThisTurn).then(() => this.#tryToRun(steps))
      },
    })
  }

  #tryToRun(steps: readonly Work<unknown>[]): Sent<Done> {
    const { clock, random } = this.#context
    const beganMs = clock.monotonicMs()
    let answers: readonly (Done | Error)[] | null = null
    for (let tries = 0; tries < TRIES_AT_ONCE && answers === null; tries++) answers = this.#run(steps)
    this.#workedMs += clock.monotonicMs() - beganMs
    this.#pauses = answers === null ? this.#pauses + 1 : 0
    if (answers !== null) return answers
    return { retryInMs: PAUSE.firstMs + growingPauseMs(this.#pauses, PAUSE) * random.fraction() }
  }

  /** Null: another process has the write lock, and nothing was done. */
  #run(steps: readonly Work<unknown>[]): readonly (Done | Error)[] | null {
    if (this.#closed) return steps.map(() => new ClosedError('The sqlite backend'))
    const { database, sql, clock } = this.#context
    let tx: Transaction
    const answers: (Done | Error)[] = []
    let committing = false
    try {
      if (this.#tokensUsedUp && !reserveTokens(database, sql)) return null
      this.#tokensUsedUp = false
      if (!database.begin()) return null
      const nowMs = clock.monotonicMs()
      tx = new Transaction(sql, nowMs)
      for (const step of steps) answers.push(perform(step, tx))
      if (tx.tokens !== undefined) sql.writeNextToken.run(tx.tokens.next)
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
    for (const hook of tx.afterCommit) hook()
    this.#onCommitted(tx)
    return answers
  }
}

function perform(step: Work<unknown>, tx: Transaction): Done | Error {
  try {
    return { value: step(tx) }
  } catch (error) {
    if (!isHoldfastError(error)) throw error
    return error
  }
}
