/** The simulated engine's state, as plain data. */
import type { Mode } from '../../../packages/holdfast/src/spi.ts'

export interface SessionState {
  readonly id: string
  /** Where pushes for it go. */
  readonly address: string
  readonly ttlMs: number
  readonly holder: string
  /** On the engine's clock. */
  prolongedAtMs: number
  /** When the engine will act on its end: its time, and what the engine may be late by. */
  endsAtMs: number
  readonly claims: Map<string, ClaimState>
  readonly marks: Map<string, 'abandoned' | 'force-released'>
}

export interface ClaimState {
  readonly attempt: string
  readonly name: string
  readonly session: SessionState
  readonly mode: Mode
  readonly weight: number
  readonly lockDelayMs: number
  /** Labels that its caller wants shown. */
  readonly labels: { readonly note?: string; readonly owner?: string }
  /** Null while it waits. */
  token: bigint | null
  previousData: string | undefined
}

export interface NameState {
  readonly name: string
  capacity: number
  readonly holders: Map<string, ClaimState>
  /** In the order of their turns; replaced, never changed in place, so that a crash can bring the old one back. */
  line: readonly ClaimState[]
  data: string | undefined
  closedUntilMs: number
}

/** Why a claim ended, as the engine sees it. */
export type Ending = 'released' | 'abandoned' | 'closed' | 'expired' | 'forced' | 'deleted'

export function heldWeight(name: NameState): number {
  let weight = 0
  for (const claim of name.holders.values()) weight += claim.weight
  return weight
}

export function isInUse(name: NameState): boolean {
  return name.holders.size > 0 || name.line.length > 0
}
