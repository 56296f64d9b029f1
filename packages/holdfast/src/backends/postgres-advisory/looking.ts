/** What operators see of a name, from the rows of `show` and `list`. */
import type { Row } from '../../clients/postgres/index.ts'
import { type Call, type HolderState, LOCK_CAPACITY, type NameState } from '../../spi.ts'
import type { Connection } from './connection.ts'

/** See `shown` in `statements.ts`. */
type ShownRow = readonly [
  name: string,
  id: string,
  token: string,
  conn: string,
  mode: 'exclusive' | 'shared',
  note: string | null,
  owner: string | null,
  holder: string,
  session: string,
  ttlMs: string,
  heldMs: string,
  leftMs: string,
  atMs: string,
]

/** A holder as the operator's calls name it: by the connection that has the lock, and the token. */
export interface ShownHolder {
  readonly id: string
  readonly token: string
  readonly conn: string
}

export async function shownHolders(
  connection: Connection,
  name: string,
  call: Call,
): Promise<readonly ShownHolder[]> {
  const rows = await connection.query(connection.sql.show, [connection.namespace, name], call)
  return (rows as readonly ShownRow[]).map(([, id, token, conn]) => ({ id, token, conn }))
}

/** The rows come in the order of the names' bytes, and of the tokens. */
export function statesOf(rows: readonly Row[]): NameState[] {
  const states = new Map<string, NameState & { readonly holders: HolderState[] }>()
  for (const row of rows as readonly ShownRow[]) {
    const [name, id, token, , mode, note, owner, holder, session, ttlMs, heldMs, leftMs, atMs] = row
    const state = states.get(name) ?? {
      name,
      capacity: LOCK_CAPACITY,
      holders: [],
      waiters: [],
      closedForMs: 0,
      atMs: Number(atMs),
    }
    states.set(name, state)
    state.holders.push({
      id,
      holder,
      mode,
      weight: mode === 'exclusive' ? LOCK_CAPACITY : 1,
      session,
      ttlMs: Number(ttlMs),
      ...(owner !== null && { owner }),
      ...(note !== null && { note }),
      token: BigInt(token),
      heldForMs: Number(heldMs),
      expiresInMs: Math.max(0, Number(leftMs)),
    })
  }
  return [...states.values()]
}
