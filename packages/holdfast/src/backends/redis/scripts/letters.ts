/** What a request asks of the batch script, in one letter: it is sent for every request, and compared in the server. */
export const Letter = {
  /** Take a lock that has no delay, or a place in line for it. Arguments: body, ttl, channel. */
  enqueue: 'E',
  /** The same without a place in line. */
  tryTake: 'T',
  /** Like `enqueue`, with the arguments of the last such request of the call. */
  enqueueAlike: 'e',
  /** Like `tryTake`, with the arguments of the last such request of the call. */
  tryTakeAlike: 't',
  /** Take anything, or a place in line for it. Arguments: body, ttl, channel, weight, capacity, mode. */
  enqueueAny: 'Q',
  /** The same without a place in line. */
  tryTakeAny: 'A',
  /** Like `enqueueAny`, unless so many are waiting already. Arguments: the same, and how many. */
  enqueueUpTo: 'U',
  /** Argument: the grant; empty releases any grant of the attempt. */
  release: 'r',
  /** Release, and keep the name closed. Arguments: the grant, for how long. */
  releaseAndKeep: 'R',
  /** The attempt can never land from now on. Argument: how long that is remembered. */
  abandon: 'B',
  /** Prolong what is held. Arguments: ttl, the grant. */
  renew: 'W',
  /** The heartbeat of a waiter. Argument: ttl. */
  beat: 'H',
  /** Look, as somebody who waits. */
  look: 'P',
} as const

export type Letter = (typeof Letter)[keyof typeof Letter]
