/** Operations of the request script, in one character each: one is sent with every request. */
export const OpCode = {
  /** No request: what the acquires that follow ask for, all of them exclusive. Arguments: body, ttl, channel. */
  terms: 'T',
  /** The same for any mode. Arguments: body, ttl, channel, weight, capacity, mode, how many may wait (or nothing). */
  anyTerms: 'A',
  /** Acquire, or join the queue. */
  enqueue: 'e',
  /** Acquire now or not at all. */
  tryAcquire: 't',
  // Each of the others has two arguments, a grant and a number of milliseconds. Those that are not named are not read.
  /** The grant (nothing releases any grant of the attempt), and how long the name stays closed. */
  release: 'r',
  /** Prolong what is held. The grant, and the TTL. */
  renew: 'w',
  /** The attempt can never be granted from now on. How long that is remembered. */
  abandon: 'x',
  /** The heartbeat of a waiter. The TTL. */
  heartbeat: 'h',
  /** Looks up the state of a waiter. */
  look: 'l',
} as const

export type OpCode = (typeof OpCode)[keyof typeof OpCode]
