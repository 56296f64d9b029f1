/** What the harness and its clients say to each other. */
import type { HistoryEvent } from '../check/index.ts'

export const lockName = 'ledger'
export const resourceName = 'ledger.db'

/** What a client needs to know from the start. */
export interface Setup {
  readonly client: string
  readonly locks: string
  readonly resource: string
  readonly guarded: boolean
  readonly ttlMs: number
}

export type Order =
  /** Acquire, read, think, write, release. Without a time, it thinks until it is told to go on. */
  | { readonly kind: 'turn'; readonly entry: string; readonly thinkMs: number | null }
  | { readonly kind: 'go' }
  /** Wait no longer, think no longer, close, and say so. */
  | { readonly kind: 'finish' }

/** An event of the history, without its place in the order of all. */
export type Note = HistoryEvent extends infer E ? (E extends HistoryEvent ? Omit<E, 'seq'> : never) : never

/** `written`: it was committed, and whoever asked for it is told so. */
export type TurnOutcome = 'written' | 'refused' | 'unknown' | 'no-lease'

export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'note'; readonly note: Note }
  | { readonly kind: 'read'; readonly entry: string; readonly token: bigint }
  | { readonly kind: 'done'; readonly entry: string; readonly outcome: TurnOutcome }
  | { readonly kind: 'closed' }
