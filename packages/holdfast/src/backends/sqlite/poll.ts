/**
 * Looks at the file for what other processes have written and have not told, and does what is due. One timer serves all
 * waiters and watchers of this process. It looks at the latest after the poll interval, and otherwise when time alone may
 * have changed something: a session expires, or a name opens. A look that finds that no other process has written to the
 * file since the last one asks nothing else, so 1,000 waiters cost as little as one (T28).
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Random } from '../../base/ids.ts'
import type { Statements } from './statements.ts'
import type { Statistics } from './statistics.ts'

export interface PollOptions {
  readonly sql: Statements
  readonly clock: Clock
  readonly random: Random
  readonly statistics: Statistics
  readonly pollMs: number
  /** Does in a transaction what time has brought about. */
  readonly catchUp: () => Promise<void>
}

/** A reason to poll. */
export interface Onlooker {
  readonly isIdle: boolean
  /** Others have written to the file. False: it could not be read, and the next poll looks again. */
  look(): boolean
}

/** All processes that poll look when a session expires; not all at the same moment. */
const SPREAD_MS = 2

export class FilePoll {
  readonly #options: PollOptions
  readonly #onlookers: Onlooker[] = []
  #timer: { readonly handle: Timer; readonly dueMs: number } | undefined
  /** The state of the file that has been seen in full. */
  #seenVersion: number | undefined
  /** While it runs, and until the next poll after it has failed, what is due is no reason to look again. */
  #catchUp: 'idle' | 'running' | 'failed' = 'idle'

  constructor(options: PollOptions) {
    this.#options = options
  }

  add(onlooker: Onlooker): void {
    this.#onlookers.push(onlooker)
  }

  /** Sets the timer to the next time at which there may be something to see, or cancels it. */
  arm(): void {
    if (this.#onlookers.every(({ isIdle }) => isIdle)) {
      this.#timer?.handle.cancel()
      this.#timer = undefined
      return
    }
    const { clock, random, pollMs } = this.#options
    const nowMs = clock.monotonicMs()
    let dueMs = this.#timer?.dueMs ?? nowMs + pollMs * (1 + random.fraction())
    if (this.#catchUp === 'idle') {
      const eventMs = Math.max(nowMs, this.#nextDueMs()) + random.fraction() * SPREAD_MS
      dueMs = Math.min(dueMs, eventMs)
    }
    if (this.#timer !== undefined && this.#timer.dueMs <= dueMs) return
    this.#timer?.handle.cancel()
    const handle = clock.setTimer(dueMs - nowMs, () => {
      this.#timer = undefined
      this.#look()
    })
    this.#timer = { handle, dueMs }
  }

  #look(): void {
    const { sql, clock, statistics } = this.#options
    statistics.polls++
    const version = ifPossible(() => sql.dataVersion.first()?.data_version)
    if (version === undefined || version !== this.#seenVersion) {
      const looks = this.#onlookers.map((onlooker) => onlooker.look())
      if (looks.every(Boolean)) this.#seenVersion = version
    }
    if (this.#catchUp === 'failed') this.#catchUp = 'idle'
    if (this.#catchUp === 'idle' && this.#nextDueMs() <= clock.monotonicMs()) this.#startCatchingUp()
    this.arm()
  }

  #startCatchingUp(): void {
    this.#catchUp = 'running'
    const end = (state: 'idle' | 'failed') => {
      this.#catchUp = state
      this.arm()
    }
    this.#options.catchUp().then(
      () => end('idle'),
      () => end('failed'),
    )
  }

  #nextDueMs(): number {
    const due = ifPossible(() => this.#options.sql.nextDue.first())
    return Math.min(due?.expiry ?? Infinity, due?.opening ?? Infinity)
  }
}

/** Looking changes nothing: what fails now is seen at the next look. */
export function ifPossible<T>(look: () => T): T | undefined {
  try {
    return look()
  } catch {
    return undefined
  }
}
