/**
 * Claims that a session holds or asks for, as this process knows them. All are asked for over one connection of this process, which
 * does one thing after the other, so nothing else knows better.
 *
 *   asking ──granted──▶ held          asking ──busy, failed──▶ (forgotten)
 *   held ──release, abandon, force release──▶ leaving ──done──▶ (forgotten)
 *
 * PostgreSQL would grant an exclusive lock to a session that has it already (T70, re-entry by session). So the session asks for a key only if its own
 * claims leave room.
 */
import { InvalidArgumentError, quote } from '../../../base/errors.ts'
import { publicIdOf } from '../../../base/ids.ts'
import type { AcquireRequest, Claim } from '../../../spi.ts'

export interface SessionClaim extends Claim {
  /** The public half of the attempt. */
  readonly id: string
  readonly key: string
  readonly mode: 'exclusive' | 'shared'
  /** Where the connection's record of it is. */
  readonly slot: number
  state: 'asking' | 'held' | 'leaving'
  token: bigint
  /** Settles when the claim is held or forgotten. */
  settled: Promise<unknown>
}

export class Claims {
  readonly #byAttempt = new Map<string, SessionClaim>()
  readonly #byKey = new Map<string, Set<SessionClaim>>()
  readonly #freeSlots: number[] = []
  #slots = 0

  get(attempt: string): SessionClaim | undefined {
    return this.#byAttempt.get(attempt)
  }

  all(): readonly SessionClaim[] {
    return [...this.#byAttempt.values()]
  }

  /**
   * Whether claims of this session exclude it. Rejects another name with the same key (T49, hash collisions). A claim that is leaving does not
   * count: the connection works in order, so its lock is free by then. Others may have seen that already, and an operator may
   * have been told so (T110, answers before their effect).
   */
  isBusy({ name, mode }: AcquireRequest, key: string): boolean {
    for (const claim of this.#byKey.get(key) ?? []) {
      if (claim.state === 'leaving') continue
      if (claim.name !== name) throw collision(name, claim.name, key)
      if (claim.mode === 'exclusive' || mode === 'exclusive') return true
    }
    return false
  }

  add({ name, attempt, mode }: AcquireRequest, key: string): SessionClaim {
    const claim: SessionClaim = {
      name,
      attempt,
      id: publicIdOf(attempt),
      key,
      mode: mode === 'shared' ? 'shared' : 'exclusive',
      slot: this.#freeSlots.pop() ?? ++this.#slots,
      state: 'asking',
      token: 0n,
      settled: Promise.resolve(),
    }
    this.#byAttempt.set(attempt, claim)
    const sharers = this.#byKey.get(key)
    if (sharers === undefined) this.#byKey.set(key, new Set([claim]))
    else sharers.add(claim)
    return claim
  }

  remove(claim: SessionClaim): void {
    const { attempt, key, slot } = claim
    if (this.#byAttempt.get(attempt) !== claim) return
    this.#byAttempt.delete(attempt)
    const sharers = this.#byKey.get(key)
    sharers?.delete(claim)
    if (sharers?.size === 0) this.#byKey.delete(key)
    this.#freeSlots.push(slot)
  }

  clear(): void {
    this.#byAttempt.clear()
    this.#byKey.clear()
  }
}

export function collision(name: string, other: string, key: string): InvalidArgumentError {
  return new InvalidArgumentError(
    'name',
    `${quote(name)} has the same advisory key as ${quote(other)} (${key}), which is held now. The two exclude each other ` +
      'although they are not the same: let key(name) spread names over all 64 bits, or use the default.',
  )
}
