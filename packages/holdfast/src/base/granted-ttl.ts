/** Where guards find the TTL of a lease: it is not part of the public interface. */
import { defaults } from './defaults.ts'

export const grantedTtlMs = Symbol('grantedTtlMs')

/** Default TTL for leases of another copy of the package, whose TTL is unknown. */
export function ttlMsOf(lease: object | undefined): number {
  return (lease as { readonly [grantedTtlMs]?: number } | undefined)?.[grantedTtlMs] ?? defaults.ttlMs
}
