/** The steps of a database for `idempotent`. Each method is one atomic step, and makes one attempt. */

export interface ClaimRequest {
  readonly scope: string
  readonly key: string
  /** A digest; null if there is none. */
  readonly payload: string | null
  /** Secret. The same attempt may be sent again after a lost answer. */
  readonly attempt: string
  readonly ttlMs: number
  readonly keepMs: number
}

export type ClaimAnswer =
  /**
   * The work is the caller's. `isTakeover`: another caller may have begun it before, and there is no outcome. The same attempt is
   * told the same again, and so is every later one until there is an outcome.
   */
  | { readonly kind: 'claimed'; readonly token: bigint; readonly isTakeover: boolean }
  | { readonly kind: 'done' | 'failed'; readonly body: string }
  /** Another caller is at it, for so long at most unless it is renewed. */
  | { readonly kind: 'busy'; readonly leftMs: number }
  /** Another transaction has kept the key locked for so long that this look was given up. Nothing was applied. */
  | { readonly kind: 'blocked' }
  /** The key belongs to another payload. */
  | { readonly kind: 'reused' }

export interface Claimed {
  readonly scope: string
  readonly key: string
  readonly attempt: string
}

export interface Outcome {
  readonly kind: 'done' | 'failed'
  readonly body: string
  readonly keepMs: number
}

/** The standing of an attempt: its stored outcome, a claim without one, or nothing because another has the claim. */
export type Standing =
  | { readonly kind: 'done' | 'failed'; readonly body: string }
  | { readonly kind: 'none' | 'lost' }

export interface Abandoned {
  /** Whether the work may have done anything under this claim. */
  readonly begun: boolean
  /** For how long it is to be remembered that it was begun. */
  readonly keepMs: number
}

export interface KeyStore<Tx> {
  /** Whose tokens the claims have; after the first contact. */
  issuer(): Promise<string>
  claim(request: ClaimRequest): Promise<ClaimAnswer>
  /**
   * False: another has it, or its time is over. True for one that has its result already. That it was
   * begun is remembered for `keepMs` beyond the claim, however often that is prolonged.
   */
  extend(claimed: Claimed, ttlMs: number, keepMs: number): Promise<boolean>
  /**
   * Stores the outcome, in the user's transaction if there is one, and answers with the outcome that there is now: one
   * that was stored before is never replaced.
   */
  settle(claimed: Claimed, outcome: Outcome, tx?: Tx): Promise<Standing>
  /**
   * Gives the claim back without an outcome, if it is still this attempt's. Work that was begun, now or before, stays known
   * as that, with a claim that is over; any other claim is forgotten. An outcome stays, and is the answer. It waits for a
   * transaction of `settle` that is still open, so the answer is what was committed.
   */
  abandon(claimed: Claimed, how: Abandoned): Promise<Standing>
  /** Removes some of what has expired; how many. */
  prune(): Promise<number>
  close(): Promise<void>
}
