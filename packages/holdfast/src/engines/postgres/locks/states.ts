/** The operators' view, of one moment: the rows of `sql/states.ts`. */

import type { HolderState, NameState, Page } from '../../../spi.ts'
import type { Row } from '../client/index.ts'

/** Names come in the order of their bytes. */
export function statesOf(rows: readonly Row[]): NameState[] {
  return rows.map(([text]) => stateOf(JSON.parse(String(text)) as ShownState))
}

/** The first row is a name, if there is another page. */
export function pageOfStates(rows: readonly Row[]): Page<NameState> {
  const first: unknown = rows.length === 0 ? null : JSON.parse(String(rows[0]?.[0]))
  if (typeof first === 'string') return { items: statesOf(rows.slice(1)), next: first }
  return { items: statesOf(rows), next: null }
}

type ShownState = Omit<NameState, 'holders'> & {
  readonly holders: readonly (Omit<HolderState, 'token'> & { readonly token: string })[]
}

function stateOf(shown: ShownState): NameState {
  return { ...shown, holders: shown.holders.map((holder) => ({ ...holder, token: BigInt(holder.token) })) }
}
