/**
 * Randomness by purpose: every draw comes from a stream that is derived from the seed and from what it is for, so
 * that taking one fault out of a plan does not change the dice of all the others.
 */

/** FNV-1a with a final avalanche: cheap, and good enough to tell purposes apart. */
export function hashOf(...parts: readonly (string | number)[]): number {
  let hash = 0x811c9dc5
  for (const part of parts) {
    const text = typeof part === 'string' ? part : String(part)
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
    hash = Math.imul(hash ^ 0x1f, 0x01000193)
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}

export class Stream {
  #state: number

  constructor(state: number) {
    this.#state = state
  }

  /** In [0, 1). */
  fraction(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  chance(share: number): boolean {
    return this.fraction() < share
  }

  between(least: number, most: number): number {
    return least + this.fraction() * (most - least)
  }

  /** A whole number, both ends included. */
  integer(least: number, most: number): number {
    return least + Math.floor(this.fraction() * (most - least + 1))
  }

  pick<T>(choices: readonly T[]): T {
    const chosen = choices[Math.floor(this.fraction() * choices.length)]
    if (chosen === undefined) throw new Error('nothing to choose from')
    return chosen
  }
}

export function stream(seed: number, ...purpose: readonly (string | number)[]): Stream {
  return new Stream(hashOf(seed, ...purpose))
}
