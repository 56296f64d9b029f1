/** What operators see of a name, from the rows of `show`. */

import { compareNames } from '../../base/names.ts'
import type { Row } from '../../clients/postgres/index.ts'
import { type HolderState, LOCK_CAPACITY, type NameState, type WaiterState } from '../../spi.ts'

/** See `show` in `statements.ts`. */
export type ShownRow = readonly [
  kind: 'holder' | 'waiter',
  name: string,
  id: string,
  holder: string,
  mode: 'exclusive' | 'shared',
  token: string,
  note: string | null,
  sinceMs: string,
  leftMs: string,
  session: string,
  conn: string,
  atMs: string,
  owner: string | null,
  sessionId: string,
  ttlMs: string,
]

/** In the order of the names' bytes; holders by token, waiters by their turn, as the rows come. */
export function statesOf(rows: readonly Row[]): NameState[] {
  const found = new Map<string, { holders: HolderState[]; waiters: WaiterState[]; atMs: number }>()
  for (const row of rows as readonly ShownRow[]) {
    const [kind, name, id, holder, mode, token, note, sinceMs, leftMs] = row
    const state = found.get(name) ?? { holders: [], waiters: [], atMs: Number(row[11]) }
    found.set(name, state)
    const weight = mode === 'exclusive' ? LOCK_CAPACITY : 1
    const [owner, session, ttlMs] = [row[12], row[13], Number(row[14])]
    const labels = { ...(owner !== null && { owner }), ...(note !== null && { note }) }
    const facts = { id, holder, mode, weight, session, ttlMs, ...labels }
    if (kind === 'waiter') state.waiters.push({ ...facts, waitingForMs: Number(sinceMs) })
    else
      state.holders.push({
        ...facts,
        token: BigInt(token),
        heldForMs: Number(sinceMs),
        expiresInMs: Math.max(0, Number(leftMs)),
      })
  }
  return [...found]
    .map(([name, state]) => ({ name, capacity: LOCK_CAPACITY, ...state, closedForMs: 0 }))
    .sort((a, b) => compareNames(a.name, b.name))
}
