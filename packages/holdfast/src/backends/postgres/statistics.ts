/** What a backend has done so far, for tests and measurements. */
export interface Statistics {
  /** Statements that were sent, of any kind: each is a round trip. */
  statements: number
  /** Of these, how many have not been answered yet. */
  inFlight: number
  /** How many items left in batches, and in how many. */
  items: number
  batches: number
  notificationsReceived: number
  /** How often waiters have looked. */
  looks: number
  /** How often it began to listen. */
  listens: number
}

export function noStatistics(): Statistics {
  return { statements: 0, inFlight: 0, items: 0, batches: 0, notificationsReceived: 0, looks: 0, listens: 0 }
}
