/**
 * Which key an attempt has. etcd visits every deleted key of a range until it is compacted, so if every attempt had
 * a key of its own, a name would get slower with each. A session therefore reuses the keys of a name. A key is named after the attempt
 * that has had it first, so no two sessions share one, and the value says which attempt has it now.
 *
 *   join ──▶ in use ──an answer says that its key has gone──▶ free ──next join for the name──▶ in use
 *   join ──▶ in use ──lost, or no answer to a join──▶ never used again
 *
 * `isSettled`: every join of the attempt was sent once and answered, so no copy of one can land any more (ADR 0022).
 *
 * Late copies of requests do no harm to the next attempt: every write but `join` compares the attempt or a revision, and `join`
 * needs an absent key. A late `join` may take a free key; the next attempt then finds it taken, and is abandoned.
 */
import type { Claim } from '../../spi.ts'

/** How many names may have free keys. Those that were used longest ago are forgotten. */
const MAX_NAMES = 1_000

interface Use {
  readonly slot: string
  /** How many joins were sent. */
  joins: number
  /** Joins of which a copy may still land. */
  open: number
}

export class Slots {
  readonly #inUse = new Map<string, Use>()
  readonly #free = new Map<string, string[]>()

  /** False for an attempt of another process, and for one that has ended. */
  knows({ attempt }: Claim): boolean {
    return this.#inUse.has(attempt)
  }

  of(attempt: string): string {
    return this.#inUse.get(attempt)?.slot ?? attempt
  }

  /** It was found at the engine. How often it was asked for is not known, unless it was by this process. */
  set({ attempt }: Claim, slot: string): void {
    this.#inUse.set(attempt, { joins: 1, open: 1, ...this.#inUse.get(attempt), slot })
  }

  /** Before each join. False if the attempt has one already, which it keeps. */
  take({ name, attempt }: Claim): boolean {
    const use = this.#inUse.get(attempt)
    if (use === undefined) {
      const slot = this.#free.get(name)?.pop() ?? attempt
      this.#inUse.set(attempt, { slot, joins: 1, open: 1 })
      return true
    }
    use.joins++
    use.open++
    return false
  }

  /** No join was sent before the last one. */
  isFirst({ attempt }: Claim): boolean {
    return this.#inUse.get(attempt)?.joins === 1
  }

  /** A join was sent once and answered. */
  settled({ attempt }: Claim): void {
    const use = this.#inUse.get(attempt)
    if (use !== undefined) use.open--
  }

  isSettled({ attempt }: Claim): boolean {
    return this.#inUse.get(attempt)?.open === 0
  }

  forget({ attempt }: Claim): void {
    this.#inUse.delete(attempt)
  }

  /** The attempt's key has gone for certain. If a join may still land, nobody else gets the key. */
  free(claim: Claim): void {
    const { name } = claim
    const [slot, isSettled] = [this.of(claim.attempt), this.isSettled(claim)]
    this.forget(claim)
    if (!isSettled) return
    const others = this.#free.get(name) ?? []
    others.push(slot)
    this.#free.delete(name)
    this.#free.set(name, others)
    const [oldest] = this.#free.size > MAX_NAMES ? this.#free.keys() : []
    if (oldest !== undefined) this.#free.delete(oldest)
  }
}
