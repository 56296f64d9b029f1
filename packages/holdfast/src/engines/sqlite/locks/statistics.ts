/** Counts of a backend's work so far, for tests and measurements. */
export type Statistics = ReturnType<typeof noStatistics>

export function noStatistics() {
  return {
    transactions: 0,
    /** Statements inside and outside of transactions, without BEGIN, COMMIT and ROLLBACK. */
    statements: 0,
    /** How often another connection had the write lock. */
    busyRetries: 0,
    /** Commits that were on the disk before they were reported: reservations of tokens. */
    reservations: 0,
    wakeUpsSent: 0,
    wakeUpsReceived: 0,
    polls: 0,
  }
}
