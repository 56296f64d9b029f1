/**
 * Claims that a session holds or asks for, as this process knows them. All are asked for over one connection of this process, which
 * does one thing after the other, so nothing else knows better.
 *
 *   asking ──granted──▶ held          asking ──busy, failed──▶ (forgotten)
 *   held ──release, abandon, force release──▶ leaving ──done──▶ (forgotten)
 *
 * PostgreSQL would grant an exclusive lock to a session that has it already (T70, re-entry by session). So the session asks for a key only if its own
 * claims leave room.
 *
 * Each claim has a slot, where the connection's record of it is. After an exclusive claim its record stays there (`schema.ts`), so
 * the slot is kept for the key: the next claim of this key has it, also while the last one is leaving.
 */
import { InvalidArgumentError, quote } from '../../../base/errors.ts'
import { publicIdOf } from '../../../base/ids.ts'
import type { AcquireRequest, Claim } from '../../../spi.ts'

export interface SessionClaim extends Claim {
  /** The public half of the attempt. */
  readonly id: string
  readonly key: string
  readonly mode: 'exclusive' | 'shared'
  readonly slot: Slot
  state: 'asking' | 'held' | 'leaving'
  token: bigint
  /** Settles when the claim is held or forgotten. */
  settled: Promise<unknown>
}

/** Place of a record. */
export interface Slot {
  readonly no: number
  /** It has had a record. */
  isWritten: boolean
  /** The key of a record there that no claim has any more. */
  oldKey: string | undefined
  /** The claim that has it. */
  claim: SessionClaim | undefined
}

export class Claims {
  readonly #byAttempt = new Map<string, SessionClaim>()
  readonly #byKey = new Map<string, Set<SessionClaim>>()
  /** Free slots whose record is over, by its key, the oldest first; and those without one. */
  readonly #kept = new Map<string, Slot>()
  readonly #blank: Slot[] = []
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
    const slot = this.#slotFor(key)
    const claim: SessionClaim = {
      name,
      attempt,
      id: publicIdOf(attempt),
      key,
      mode: mode === 'shared' ? 'shared' : 'exclusive',
      slot,
      state: 'asking',
      token: 0n,
      settled: Promise.resolve(),
    }
    slot.claim = claim
    this.#byAttempt.set(attempt, claim)
    const sharers = this.#byKey.get(key)
    if (sharers === undefined) this.#byKey.set(key, new Set([claim]))
    else sharers.add(claim)
    return claim
  }

  granted(claim: SessionClaim, token: bigint): void {
    claim.state = 'held'
    claim.token = token
    claim.slot.isWritten = true
    claim.slot.oldKey = claim.mode === 'exclusive' ? claim.key : undefined
  }

  /** It was not granted. `isCleared`: its slot has lost the record that it had. */
  refused(claim: SessionClaim, isCleared: boolean): void {
    const { slot, key, mode } = claim
    if (isCleared || slot.oldKey !== key || mode === 'shared') slot.oldKey = undefined
    this.remove(claim)
  }

  remove(claim: SessionClaim): void {
    const { attempt, key, slot } = claim
    if (this.#byAttempt.get(attempt) !== claim) return
    this.#byAttempt.delete(attempt)
    const sharers = this.#byKey.get(key)
    sharers?.delete(claim)
    if (sharers?.size === 0) this.#byKey.delete(key)
    if (slot.claim !== claim) return
    slot.claim = undefined
    if (slot.oldKey === undefined) this.#blank.push(slot)
    else this.#kept.set(slot.oldKey, slot)
  }

  clear(): void {
    this.#byAttempt.clear()
    this.#byKey.clear()
  }

  #slotFor(key: string): Slot {
    for (const { slot, state, mode } of this.#byKey.get(key) ?? [])
      if (state === 'leaving' && mode === 'exclusive' && slot.claim?.state === 'leaving') return slot
    const [oldest] = this.#kept.values()
    const kept = this.#kept.get(key)
    const slot = kept ?? this.#blank.pop() ?? (this.#kept.size < MOST_KEPT ? undefined : oldest)
    if (slot === undefined)
      return { no: ++this.#slots, isWritten: false, oldKey: undefined, claim: undefined }
    if (slot.oldKey !== undefined) this.#kept.delete(slot.oldKey)
    return slot
  }
}

/** Slots that are kept for the keys of their last claims before one of them is given to another key. */
const MOST_KEPT = 64

export function collision(name: string, other: string, key: string): InvalidArgumentError {
  return new InvalidArgumentError(
    'name',
    `${quote(name)} has the same advisory key as ${quote(other)} (${key}), which is held now. The two exclude each other ` +
      'although they are not the same: let key(name) spread names over all 64 bits, or use the default.',
  )
}
