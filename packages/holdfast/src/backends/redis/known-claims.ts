/** What was asked for through one session object and is not known to be over: the server keeps no such list. */
import type { Claim } from '../../spi.ts'

interface Known {
  readonly name: string
  readonly isWaiting: boolean
}

export class KnownClaims extends Map<string, Known> {
  /** Those that a keep-alive did not list. */
  besides(listed: readonly Claim[]): Claim[] {
    if (this.size === 0) return []
    const isListed = new Set(listed.map(({ attempt }) => attempt))
    const unlisted: Claim[] = []
    for (const [attempt, { name }] of this) if (!isListed.has(attempt)) unlisted.push({ attempt, name })
    return unlisted
  }
}
