/** The operators' view of a name, from the rows of `show` and `list`. */

import { type Call, type HolderState, LOCK_CAPACITY, type NameState } from '../../../spi.ts'
import type { Row } from '../client/index.ts'
import type { Connection } from './connection.ts'

/** See `shown` in `statements.ts`. */
type ShownRow = readonly [name: string, conn: string, token: string, atMs: string, holder: string]

/** A holder as an operator's call names it: by the connection that has the lock, and the token. */
export interface SeenHolder {
  readonly id: string
  readonly token: string
  readonly conn: string
}

export async function seenHolders(
  connection: Connection,
  name: string,
  call: Call,
): Promise<readonly SeenHolder[]> {
  const rows = await connection.query(connection.sql.show, [connection.namespace, name], call)
  return (rows as readonly ShownRow[]).map(([, conn, token, , holder]) => ({
    id: JSON.parse(holder).id as string,
    token,
    conn,
  }))
}

/** The rows come in the order of the names' bytes, and of the tokens. */
export function statesOf(rows: readonly Row[]): NameState[] {
  const states = new Map<string, NameState & { readonly holders: HolderState[] }>()
  for (const [name, , token, atMs, json] of rows as readonly ShownRow[]) {
    const shared = { name, capacity: LOCK_CAPACITY, waiters: [], closedForMs: 0, atMs: Number(atMs) }
    const state = states.get(name) ?? { ...shared, holders: [] }
    states.set(name, state)
    const holder = JSON.parse(json) as Omit<HolderState, 'token' | 'weight'>
    const weight = holder.mode === 'exclusive' ? LOCK_CAPACITY : 1
    state.holders.push({ ...holder, weight, token: BigInt(token) })
  }
  return [...states.values()]
}
