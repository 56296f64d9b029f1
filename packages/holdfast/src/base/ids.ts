/**
 * Randomness, injected. This is the one file that may ask the system for random numbers.
 *
 * An attempt's id has two halves of 128 random bits each. The first half is public: it is the lease's id and the
 * `grant` of its fence, and it is shown to operators and resources. The second half never leaves the engine and
 * the process that made the attempt: a client that knows both may release.
 */
import { randomFillSync } from 'node:crypto'

export interface Random {
  /** 128 random bits as 22 characters of base64url. */
  id(): string
  /** A number in [0, 1), for jitter. */
  fraction(): number
}

const ID_BYTES = 16
const POOLED_IDS = 512

function createSystemRandom(): Random {
  const pool = Buffer.alloc(ID_BYTES * POOLED_IDS)
  let used = pool.length
  const take = (bytes: number): number => {
    if (used + bytes > pool.length) {
      randomFillSync(pool)
      used = 0
    }
    used += bytes
    return used - bytes
  }
  return {
    id: () => {
      const at = take(ID_BYTES)
      return pool.toString('base64url', at, at + ID_BYTES)
    },
    fraction: () => pool.readUInt32LE(take(4)) / 2 ** 32,
  }
}

export const systemRandom: Random = createSystemRandom()

/** How long the public half of an attempt is, with which it begins; stored attempts are cut there by statements and scripts. */
export const ID_LENGTH = 22

export function newAttempt(random: Random): string {
  return `${random.id()}.${random.id()}`
}

/** The half of an attempt's id that may be shown. */
export function publicIdOf(attempt: string): string {
  return attempt.slice(0, ID_LENGTH)
}
