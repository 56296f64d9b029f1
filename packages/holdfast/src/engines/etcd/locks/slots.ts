/**
 * Which key an attempt has. etcd visits every deleted key of a range until it is compacted, so if every attempt had
 * a key of its own, a name would get slower with each. A session therefore reuses the keys of a name. A key is named after the attempt
 * that has had it first, so no two sessions share one, and the value says which attempt has it now.
 *
 *   join ──▶ in use ──its key has gone, and no join of it may still land──▶ free ──next join for the name──▶ in use
 *   join ──▶ in use ──lost, or a join of it may still land──▶ never used again
 *
 * Late copies of requests do no harm to the next attempt: every write but `join` compares the attempt or a revision, and `join`
 * needs an absent key. A late `join` may take a free key; the next attempt then finds it taken, and is abandoned.
 */
import type { Claim } from '../../../spi.ts'

/** How many names may have free keys. Those that were used longest ago are forgotten. */
const MAX_NAMES = 1_000

export class Slots {
  readonly #inUse = new Map<string, string>()
  readonly #free = new Map<string, string[]>()

  /** False for an attempt of another process, and for one that has ended. */
  knows({ attempt }: Claim): boolean {
    return this.#inUse.has(attempt)
  }

  of(attempt: string): string {
    return this.#inUse.get(attempt) ?? attempt
  }

  set({ attempt }: Claim, slot: string): void {
    this.#inUse.set(attempt, slot)
  }

  /** Before a join. An attempt that has a slot already keeps it. */
  take(claim: Claim): void {
    if (!this.knows(claim)) this.set(claim, this.#free.get(claim.name)?.pop() ?? claim.attempt)
  }

  forget({ attempt }: Claim): void {
    this.#inUse.delete(attempt)
  }

  free(claim: Claim): void {
    if (!this.knows(claim)) return
    const { name } = claim
    const others = this.#free.get(name) ?? []
    others.push(this.of(claim.attempt))
    this.forget(claim)
    this.#free.delete(name)
    this.#free.set(name, others)
    const [oldest] = this.#free.size > MAX_NAMES ? this.#free.keys() : []
    if (oldest !== undefined) this.#free.delete(oldest)
  }
}
