/** Messages between the harness and its clients. */
import type { HistoryEvent } from '../check/index.ts'
import type { Addresses, EngineName } from './engines/engine.ts'
import type { Protection, ResourceName } from './resources/resource.ts'

export const lockName = 'ledger'
export const resourceName = 'the ledger'

/** The setup that a client needs to know from the start. */
export interface Setup {
  readonly client: string
  readonly engine: EngineName
  /** Where this client finds the engine. */
  readonly addresses: Addresses
  readonly resource: { readonly name: ResourceName; readonly addresses: Addresses }
  readonly protection: Protection
  readonly ttlMs: number
}

export type Order =
  /** Acquire, read, think, write, release. Without a time, it thinks until it is told to go on. */
  | { readonly kind: 'turn'; readonly entry: string; readonly thinkMs: number | null }
  | { readonly kind: 'go' }
  /** A client that thinks goes on thinking until it is told to go on, however long it was to think. */
  | { readonly kind: 'hold' }
  /** Wait no longer, think no longer, close, and say so. */
  | { readonly kind: 'finish' }

/** An event of the history, without its place in the order of all. */
export type Note = HistoryEvent extends infer E ? (E extends HistoryEvent ? Omit<E, 'seq'> : never) : never

/** The resource has refused a client: its guard, with the tokens, or its comparison. */
export interface Refused {
  readonly kind: 'refused'
  readonly access: 'read' | 'write'
  readonly at: number
  readonly stale: { readonly token: bigint; readonly highest: bigint } | null
}

/** `written`: it was committed, and its caller is told so. */
export type TurnOutcome = 'written' | 'refused' | 'unknown' | 'no-lease'

export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'note'; readonly note: Note }
  | { readonly kind: 'read'; readonly entry: string }
  /** It has learnt that its lease is over. */
  | { readonly kind: 'lost' }
  | Refused
  | { readonly kind: 'done'; readonly entry: string; readonly outcome: TurnOutcome }
  | { readonly kind: 'closed' }
