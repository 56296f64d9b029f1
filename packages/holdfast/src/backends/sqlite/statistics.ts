/** What a backend has done so far, for tests and measurements. */
export interface Statistics {
  transactions: number
  /** Statements inside and outside of transactions, without BEGIN, COMMIT and ROLLBACK. */
  statements: number
  /** How often another connection had the write lock. */
  busyRetries: number
  /** Commits that were on the disk before they were reported: reservations of tokens. */
  reservations: number
  wakeUpsSent: number
  wakeUpsReceived: number
  polls: number
}

export function noStatistics(): Statistics {
  return {
    transactions: 0,
    statements: 0,
    busyRetries: 0,
    reservations: 0,
    wakeUpsSent: 0,
    wakeUpsReceived: 0,
    polls: 0,
  }
}
