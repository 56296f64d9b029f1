/** Events of a round. Workers report most of them themselves; stopping and waking workers is the conductor's. */

/** One addition to the ledger. It keeps its id when it has to be tried again, so that the audit can find it. */
export interface Entry {
  readonly id: string
  /** The line that was free when the ledger was read, and the balance that this entry makes of what was read. */
  readonly line: number
  readonly balance: number
}

export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'waiting' }
  | { readonly kind: 'acquired'; readonly token: string }
  | { readonly kind: 'about-to-write'; readonly token: string; readonly entry: Entry }
  /** The acknowledgement: the caller is told now that its entry is in the ledger. */
  | { readonly kind: 'written'; readonly token: string; readonly entry: Entry }
  | { readonly kind: 'refused'; readonly token: string; readonly highest: string; readonly entry: Entry }
  /** The worker noticed by itself, before it wrote, that its lease had ended. */
  | { readonly kind: 'gave-up'; readonly token: string }
  | { readonly kind: 'released'; readonly token: string }
  | { readonly kind: 'done' }

export type RoundEvent = { readonly atMs: number; readonly worker: string } & (
  | Report
  | { readonly kind: 'stopped' }
  | { readonly kind: 'continued' }
)

/** Orders for a worker at the beginning of a round. */
export interface Orders {
  readonly locks: string
  readonly ledger: string
  readonly guarded: boolean
  readonly entries: number
  readonly ttlMs: number
}

/** Milliseconds on the clock that all processes of a machine share, so that their reports fit on one time line. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
