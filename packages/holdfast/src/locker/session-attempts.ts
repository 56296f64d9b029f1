/**
 * The attempts of a session by their id, whatever their state, and its leases by name. An acquire that times out asks which
 * leases its locker has on the name; the answer must not cost more when the locker holds many others. Leases by name are kept from
 * the first such question on: most sessions are never asked.
 */

import { TransientMap } from '../base/transient-map.ts'
import type { Claim, Fencing, GrantedClaim } from '../spi.ts'
import type { Attempt } from './attempt.ts'
import type { LeaseRecord } from './lease.ts'

/** A claim that the engine may or may not have, and that is being abandoned: the outcome of its attempt is unknown. */
export interface Leftover {
  readonly state: 'unresolved'
  readonly claim: Claim | GrantedClaim
  /** Until when the name is to stay closed, on the monotonic clock. */
  readonly closedUntilMs: number
}

export class SessionAttempts<F extends Fencing> extends TransientMap<string, Attempt<F> | Leftover> {
  /** A set only where a name has several: nearly all names have one. */
  #byName: TransientMap<string, LeaseRecord | Set<LeaseRecord>> | undefined;

  /** The leases that are held. */
  *leases(): Generator<LeaseRecord> {
    for (const each of this.values()) if (each.state === 'held' && each.lease !== undefined) yield each.lease
  }

  *leasesOn(name: string): Generator<LeaseRecord> {
    this.#byName ??= this.#indexByName()
    const found = this.#byName.get(name)
    if (found instanceof Set) yield* found
    else if (found !== undefined) yield found
  }

  noteHeld(lease: LeaseRecord): void {
    if (this.#byName !== undefined) addTo(this.#byName, lease)
  }

  /** The holder has it no more, whatever the engine has. */
  noteEnded(lease: LeaseRecord, state: 'releasing' | 'lingering' | 'over'): void {
    const { name, attempt } = lease.claim
    const own = this.get(attempt)
    if (own?.state === 'held') own.state = state
    const found = this.#byName?.get(name)
    if (found instanceof Set) found.delete(lease)
    if (found === lease || (found instanceof Set && found.size === 0)) this.#byName?.delete(name)
  }

  #indexByName(): TransientMap<string, LeaseRecord | Set<LeaseRecord>> {
    const byName = new TransientMap<string, LeaseRecord | Set<LeaseRecord>>()
    for (const lease of this.leases()) addTo(byName, lease)
    return byName
  }
}

function addTo(byName: TransientMap<string, LeaseRecord | Set<LeaseRecord>>, lease: LeaseRecord): void {
  const { name } = lease.claim
  const found = byName.get(name)
  if (found instanceof Set) found.add(lease)
  else byName.set(name, found === undefined ? lease : new Set([found, lease]))
}
