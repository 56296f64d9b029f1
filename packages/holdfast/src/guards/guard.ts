/**
 * A guard lives in the protected resource. It remembers the highest token that it has seen for every name and
 * refuses older ones, so a holder that was overtaken cannot change anything, whatever it still believes (G5).
 *
 * - The check and the effect are one atomic step, and what the guard remembers is as durable as the effect.
 * - Reads go through the guard as well. Guarding writes alone loses updates: the new holder reads, the stale one
 *   writes, the new one overwrites (T40, unchecked reads).
 * - Whose tokens a guard compares is settled once: by `issuers`, or by the first fence that it ever accepts (T43, foreign tokens).
 */
import type { Fence } from '../base/fence.ts'
import type { FencedLease } from '../base/types.ts'

/** Proof that the caller is the holder. Unfenced leases and permits are no proof, by type. */
export type Proof = FencedLease | Fence

export interface EnterOptions {
  /**
   * Also refuses a fence that has been here before: at most one effect for one lease. Only for exclusive fences,
   * because a guard does not remember every one of many shared holders.
   */
  readonly once?: boolean
}

export interface RunOptions extends EnterOptions {
  /**
   * Ends the wait for other runs, for a busy resource, and for the commit: `run` rejects with the signal's reason and
   * nothing has been applied. An effect that has started is awaited, so hand it the signal too.
   * On PostgreSQL the loss of a lease ends a run as well, and does not wait for the effect. On etcd and object stores, a write that
   * was sent cannot be called back: then it rejects with `BACKEND_UNAVAILABLE`, and the outcome is unknown.
   */
  readonly signal?: AbortSignal
}

export interface Guard<Tx> {
  /** Tells guards apart that share a resource, and in events. */
  readonly name: string

  /**
   * Runs `effect` in a transaction of the resource, unless one of the proofs is stale. If the effect throws, both
   * what it did and what the guard learnt are undone.
   *
   * ```ts
   * await guard.run(lease, async (tx) => {
   *   const balance = await read(tx)
   *   await write(tx, balance - 10)
   * })
   * ```
   *
   * With several proofs all must pass, or nothing happens.
   *
   * @throws FenceStaleError     a newer holder has been here
   * @throws FenceForeignError   the fence's issuer is not the one whose tokens are compared here
   * @throws FenceInvalidError   the proof is not a fence
   * @throws LeaseLostError      the proof is a lease that has ended; on PostgreSQL also if it ends before the commit
   */
  run<T>(
    proof: Proof | readonly Proof[],
    effect: (tx: Tx) => Promise<T> | T,
    options?: RunOptions,
  ): Promise<T>

  /**
   * For a transaction that is yours, or your ORM's: checks and remembers in it. Call it first thing, before any
   * read, and roll back when it rejects.
   */
  enter(tx: Tx, proof: Proof | readonly Proof[], options?: EnterOptions): Promise<void>

  /** The newest fence that the guard has seen for a name; null if it has seen none, or has forgotten it. */
  highest(name: string): Promise<Fence | null>

  /**
   * Forgets the names that were not touched for that long, and keeps one floor for each issuer instead: tokens
   * are ordered across names, so a forgotten name accepts only what is newer than everything that was forgotten.
   * A lease that is older than that must be acquired again. Returns how many names were forgotten.
   */
  prune(options: { readonly untouchedForMs: number }): Promise<number>
}

/** Options of all guards. */
export interface GuardOptions {
  /** Default `default`. Guards of one resource with the same name share what they remember. */
  readonly name?: string
  /** Whose fences are trusted. Without it, the issuer of the first accepted fence, for good. */
  readonly issuers?: readonly string[]
  /** Names untouched for that long are forgotten now and then, as by `prune`. Default 2,592,000,000, which is 30 days; `Infinity` for never. */
  readonly forgetAfterMs?: number
}
