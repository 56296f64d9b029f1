/** The audit of a round: what each worker was told must be in the ledger's file. */
import { amount } from './ledger.ts'
import type { Round } from './round.ts'

export interface Audit {
  /** The entries that were acknowledged as written. */
  readonly acknowledged: readonly string[]
  /** The entries that the ledger's file holds. */
  readonly held: readonly string[]
  /** Acknowledged, and not in the ledger. */
  readonly lost: readonly string[]
  /** In the ledger without having been acknowledged, or twice. */
  readonly unexplained: readonly string[]
  readonly expectedBalance: number
  readonly balance: number
  readonly intact: boolean
}

export function audit({ events, lines }: Round): Audit {
  const acknowledged = events.flatMap((event) => (event.kind === 'written' ? [event.entry.id] : []))
  const held = lines.map(({ entry }) => entry)
  const lost = acknowledged.filter((entry) => !held.includes(entry))
  const unexplained = held.filter(
    (entry, index) => !acknowledged.includes(entry) || held.indexOf(entry) !== index,
  )
  const expectedBalance = acknowledged.length * amount
  const balance = lines.at(-1)?.balance ?? 0
  const intact = lost.length === 0 && unexplained.length === 0 && balance === expectedBalance
  return { acknowledged, held, lost, unexplained, expectedBalance, balance, intact }
}
