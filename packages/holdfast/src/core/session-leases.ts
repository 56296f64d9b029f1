/**
 * The leases of a session by attempt, and the attempts by name. An acquire that times out asks which leases its locker
 * has on the name; the answer must not cost more when the locker holds many others.
 */
import type { LeaseRecord } from './lease.ts'
import { TransientMap } from './transient-map.ts'

export class SessionLeases extends TransientMap<string, LeaseRecord> {
  /** A set only where a name has several: nearly all names have one. */
  readonly #attempts = new TransientMap<string, string | Set<string>>()

  override set(attempt: string, lease: LeaseRecord): void {
    super.set(attempt, lease)
    const { name } = lease.claim
    const attempts = this.#attempts.get(name)
    if (attempts === undefined) this.#attempts.set(name, attempt)
    else if (typeof attempts !== 'string') attempts.add(attempt)
    else if (attempts !== attempt) this.#attempts.set(name, new Set([attempts, attempt]))
  }

  override delete(attempt: string): boolean {
    const lease = this.get(attempt)
    if (lease === undefined) return false
    const { name } = lease.claim
    const attempts = this.#attempts.get(name)
    if (typeof attempts === 'object') attempts.delete(attempt)
    if (typeof attempts === 'string' || attempts?.size === 0) this.#attempts.delete(name)
    return super.delete(attempt)
  }

  override clear(): void {
    super.clear()
    this.#attempts.clear()
  }

  *onName(name: string): Generator<LeaseRecord> {
    const attempts = this.#attempts.get(name)
    if (attempts === undefined) return
    for (const attempt of typeof attempts === 'string' ? [attempts] : attempts) {
      const lease = this.get(attempt)
      if (lease !== undefined) yield lease
    }
  }
}
