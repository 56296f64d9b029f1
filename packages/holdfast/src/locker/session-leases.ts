/**
 * The leases of a session by attempt, and the attempts by name. An acquire that times out asks which leases its locker
 * has on the name; the answer must not cost more when the locker holds many others. The attempts by name are kept from the
 * first such question on: most sessions are never asked.
 */

import { TransientMap } from '../base/transient-map.ts'
import type { LeaseRecord } from './lease.ts'

export class SessionLeases extends TransientMap<string, LeaseRecord> {
  /** A set only where a name has several: nearly all names have one. */
  #byName: TransientMap<string, string | Set<string>> | undefined

  override set(attempt: string, lease: LeaseRecord): void {
    super.set(attempt, lease)
    if (this.#byName !== undefined) addTo(this.#byName, lease.claim.name, attempt)
  }

  override delete(attempt: string): boolean {
    const lease = this.#byName === undefined ? undefined : this.get(attempt)
    if (lease !== undefined) this.#removeFromNames(lease.claim.name, attempt)
    return super.delete(attempt)
  }

  #removeFromNames(name: string, attempt: string): void {
    const attempts = this.#byName?.get(name)
    if (typeof attempts === 'object') attempts.delete(attempt)
    if (typeof attempts === 'string' || attempts?.size === 0) this.#byName?.delete(name)
  }

  override clear(): void {
    super.clear()
    this.#byName = undefined
  }

  #indexByName(): TransientMap<string, string | Set<string>> {
    const byName = new TransientMap<string, string | Set<string>>()
    for (const [attempt, lease] of this) addTo(byName, lease.claim.name, attempt)
    return byName
  }

  *onName(name: string): Generator<LeaseRecord> {
    this.#byName ??= this.#indexByName()
    const attempts = this.#byName.get(name)
    if (attempts === undefined) return
    for (const attempt of typeof attempts === 'string' ? [attempts] : attempts) {
      const lease = this.get(attempt)
      if (lease !== undefined) yield lease
    }
  }
}

function addTo(byName: TransientMap<string, string | Set<string>>, name: string, attempt: string): void {
  const attempts = byName.get(name)
  if (attempts === undefined) byName.set(name, attempt)
  else if (typeof attempts !== 'string') attempts.add(attempt)
  else if (attempts !== attempt) byName.set(name, new Set([attempts, attempt]))
}
