/** Randomness that a test can repeat: the same seed gives the same ids, the same jitter and the same faults. */
import type { Random } from '../base/ids.ts'

const ID_BYTES = 16

export function seededRandom(seed: number): Random {
  let state = seed >>> 0
  // Mulberry32: tiny, fast, and random enough to choose between cases. Never use it for secrets.
  const fraction = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  return {
    fraction,
    id: () => {
      const bytes = Buffer.alloc(ID_BYTES)
      for (let at = 0; at < ID_BYTES; at += 4) bytes.writeUInt32LE(Math.floor(fraction() * 2 ** 32), at)
      return bytes.toString('base64url')
    },
  }
}
