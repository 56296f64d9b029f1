/** One write transaction while it is open: the time by which it judges, and what must happen once it has committed. */
import type { Statements } from './statements.ts'
import type { TokenCounter } from './tokens.ts'

/** A waiter that was granted. */
export interface Handover {
  readonly session: number
  readonly attempt: string
  readonly token: bigint
  readonly data: string | null
  /** Where its process listens; null if it does not. */
  readonly address: string | null
}

export interface Transaction {
  readonly sql: Statements
  /**
   * Read after the write lock was won. A process that prolonged a session has committed before that, and none can
   * while this transaction is open, so what has expired by this time stays so (T66, racing take-overs).
   */
  readonly nowMs: number
  /** Undefined until a token is drawn. */
  tokens: TokenCounter | undefined
  readonly handovers: Handover[]
  /** Sessions that this transaction has removed. */
  readonly endedSessions: number[]
  /** Called if and after this transaction has committed, before anything else is. */
  readonly afterCommit: (() => void)[]
}
