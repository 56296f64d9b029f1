/** Sequences that once failed, as small as they could be made; played before the random ones. */
import { LOCK_CAPACITY } from '../../src/spi.ts'
import type { LockerCommand } from './locker/commands.ts'
import type { SpiCommand } from './spi/commands.ts'

const permits = { mode: 'permits', capacity: 3, lockDelayMs: 0, note: false, session: 0, via: 0 } as const
const lock = { mode: 'exclusive', weight: LOCK_CAPACITY, capacity: LOCK_CAPACITY, note: false } as const

export const spiRegressions: readonly SpiCommand[][] = [
  // Asked for again after a resize, a position in the queue was refused for its old capacity.
  [
    { do: 'try', name: 2, weight: 2, ...permits },
    { do: 'enqueue', name: 2, weight: 2, ...permits },
    { do: 'resize', name: 2, client: 0, capacity: 2 },
    { do: 'enqueueAgain', attempt: 0 },
    { do: 'tryAgain', attempt: 0, via: 0 },
  ],
  // A session dies together with the holder that it waits for.
  [
    { do: 'try', session: 0, via: 0, name: 0, lockDelayMs: 120, ...lock },
    { do: 'enqueue', session: 0, via: 0, name: 0, lockDelayMs: 0, ...lock },
    { do: 'enqueue', session: 1, via: 0, name: 0, lockDelayMs: 0, ...lock },
    { do: 'pass', ms: 999 },
    { do: 'keepAlive', session: 1, via: 0, list: 'known' },
    { do: 'pass', ms: 200 },
  ],
]

const forever = Number.POSITIVE_INFINITY
const holding = { name: 0, mode: 'exclusive', lockDelayMs: 0, holdAtLeastMs: 0, maxHoldMs: forever } as const

/** With the seeds that make the machines wait in the way that it takes. */
export const lockerRegressions: readonly [LockerCommand[], number][] = [
  // The session and the deadline of a waiter ended in the same moment, and it was rejected with undefined.
  [
    [
      { do: 'acquire', machine: 0, ttl: 0, waitMs: 0, ...holding },
      { do: 'acquire', machine: 1, ttl: 0, waitMs: 350, ...holding },
      { do: 'block', machine: 1, ms: 353 },
    ],
    1,
  ],
  // A twin of the request arrived after the name had been deleted, and took it again.
  [
    [
      { do: 'fault', machine: 1, call: 'enqueue', fault: { kind: 'duplicate', ms: 1 } },
      { do: 'acquire', machine: 1, ttl: 0, waitMs: 60, ...holding },
      { do: 'delete', name: 0 },
    ],
    1_805_925_468,
  ],
]
