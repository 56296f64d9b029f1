/** Where guards find the TTL of a lease: it is not part of the public interface. */
import { defaults } from './defaults.ts'

export const grantedTtlMs = Symbol('grantedTtlMs')

/** Of a lease that is not our own (or of a second copy of the package) it is not known, and the default counts. */
export function ttlMsOf(lease: object | undefined): number {
  return (lease as { readonly [grantedTtlMs]?: number } | undefined)?.[grantedTtlMs] ?? defaults.ttlMs
}
