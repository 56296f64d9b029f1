/** What was asked for through one session object and is not known to be over: the server keeps no such list. */
import { TransientMap } from '../../base/transient-map.ts'
import type { Claim } from '../../spi.ts'

export interface Known {
  readonly name: string
  /** It has, or may have, a place in line. */
  isWaiting: boolean
  /** Its place has been asked for, and there is no answer yet. */
  isAsked: boolean
}

export class KnownClaims extends TransientMap<string, Known> {
  /** What is known of an attempt stays; what is new is known from here on. */
  note(attempt: string, name: string, isWaiting: boolean): Known {
    const before = this.get(attempt)
    if (before !== undefined) return before
    const known = { name, isWaiting, isAsked: false }
    this.set(attempt, known)
    return known
  }

  /** Those that a keep-alive did not list. */
  besides(listed: readonly Claim[]): Claim[] {
    if (this.size === 0) return []
    const isListed = new Set(listed.map(({ attempt }) => attempt))
    const unlisted: Claim[] = []
    for (const [attempt, { name }] of this) if (!isListed.has(attempt)) unlisted.push({ attempt, name })
    return unlisted
  }
}
