/** One write transaction while it is open: the time by which it judges, and what must happen once it has committed. */
import { EventLog } from './event-log.ts'
import type { Statements } from './statements.ts'
import { TokenCounter } from './tokens.ts'

/** A waiter that was granted. */
export interface Handover {
  readonly session: number
  readonly attempt: string
  readonly token: bigint
  readonly data: string | null
  /** Where its process listens; null if it does not. */
  readonly address: string | null
}

export class Transaction {
  readonly sql: Statements
  /**
   * Read after the write lock was won. A process that prolonged a session has committed before that, and none can
   * while this transaction is open, so what has expired by this time stays so (T66).
   */
  readonly nowMs: number
  readonly handovers: Handover[] = []
  /** Sessions that this transaction has removed. */
  readonly endedSessions: number[] = []
  readonly tokens: TokenCounter
  readonly log: EventLog
  readonly #afterCommit: (() => void)[] = []

  constructor(sql: Statements, nowMs: number) {
    this.sql = sql
    this.nowMs = nowMs
    this.tokens = new TokenCounter(sql)
    this.log = new EventLog(sql, nowMs)
  }

  drawToken(): bigint {
    return this.tokens.draw()
  }

  /** `hook` runs only if and after this transaction has committed, before anything else does. */
  afterCommit(hook: () => void): void {
    this.#afterCommit.push(hook)
  }

  beforeCommit(): void {
    this.tokens.writeBack()
    this.log.beforeCommit()
  }

  committed(): void {
    for (const hook of this.#afterCommit) hook()
  }
}
