/**
 * Looks at the file for what other processes have written and have not told, and does what is due. One timer serves all
 * waiters and watchers of this process. A look that finds that no other process has written to the file since the last one
 * asks nothing else, so 1,000 waiters cost as little as one (T28, one wake-up a release).
 */
import { Looks } from '../../../kit/looks.ts'
import type { Context } from './connection.ts'
import { nextDueMs } from './statements.ts'

type PollContext = Pick<Context, 'sql' | 'clock' | 'random' | 'statistics' | 'pollMs'>

/** A reason to poll. */
export interface Onlooker {
  readonly isIdle: boolean
  /** Called when others have written to the file. If it throws, the next poll looks again. */
  look(): void
}

/** All processes that poll look when a session expires; not all at the same moment. */
const SPREAD_MS = 2
const FILE = 'the file'

export class FilePoll {
  readonly #context: PollContext
  readonly #catchUp: () => Promise<void>
  readonly #looks: Looks
  readonly #onlookers: Onlooker[] = []
  /** The state of the file that has been seen in full. */
  #seenVersion: number | undefined

  /** `catchUp` does in a transaction what time has brought about. */
  constructor(context: PollContext, catchUp: () => Promise<void>) {
    const { clock, random, pollMs } = context
    this.#context = context
    this.#catchUp = catchUp
    this.#looks = new Looks({
      clock,
      random,
      pollMs,
      isTold: () => false,
      isNeeded: () => !this.#isIdle,
      look: () => this.#look(),
    })
  }

  get #isIdle(): boolean {
    return this.#onlookers.every(({ isIdle }) => isIdle)
  }

  add(onlooker: Onlooker): void {
    this.#onlookers.push(onlooker)
  }

  /** An onlooker has come or gone. */
  arm(): void {
    if (this.#isIdle) this.#looks.stop()
    else this.#lookWhenDue()
  }

  #lookWhenDue(): void {
    const { sql, clock, random } = this.#context
    try {
      const inMs = nextDueMs(sql) - clock.monotonicMs()
      if (inMs < Infinity) this.#looks.due(FILE, Math.max(0, inMs) + random.fraction() * SPREAD_MS)
    } catch {
      // The file cannot be read now. The next poll tries again.
    }
    this.#looks.expectNews()
  }

  async #look(): Promise<void> {
    const { sql, clock, statistics } = this.#context
    statistics.polls++
    const version = sql.dataVersion.first()?.data_version
    if (version === undefined || version !== this.#seenVersion)
      for (const onlooker of this.#onlookers) onlooker.look()
    this.#seenVersion = version
    try {
      if (nextDueMs(sql) <= clock.monotonicMs()) await this.#catchUp()
    } catch {
      // A task that failed is tried again at the next poll.
      return
    }
    if (!this.#isIdle) this.#lookWhenDue()
  }
}
