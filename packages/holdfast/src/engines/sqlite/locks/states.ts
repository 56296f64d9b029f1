/**
 * The operators' view, read from one snapshot. Readers do not wait for writers, so nothing is cleaned up on the way: what has
 * expired is left out here, and the lock-delay that it leaves behind is worked out.
 */
import { compareNames } from '../../../base/names.ts'
import { claimState } from '../../../kit/backend-kit.ts'
import type { NameKey } from '../../../kit/rules.ts'
import type { HolderState, NameState, Page, PageRequest, SessionState, WaiterState } from '../../../spi.ts'
import type { Statements } from './statements.ts'

/** Longer than what any name can have after its prefix, and after all of it in byte order. */
const AFTER_ALL = '\u{10FFFF}'.repeat(64)

export function inspect(
  sql: Statements,
  { namespace, name }: NameKey,
  nowMs: number,
  holdersOnly = false,
): NameState | null {
  return inSnapshot(sql, () => read(sql, namespace, [name, name], nowMs, holdersOnly))[0] ?? null
}

/** Names come in the order of their bytes, which is how SQLite compares text. */
export function list(
  sql: Statements,
  { namespace, prefix }: { readonly namespace: string; readonly prefix: string },
  { cursor, limit }: PageRequest,
  nowMs: number,
): Page<NameState> {
  const isInside = cursor !== undefined && compareNames(cursor, prefix) >= 0
  // The next string in byte order; no name has control characters.
  const from = isInside ? `${cursor}\0` : prefix
  return inSnapshot(sql, () => {
    // One more than wanted, to know whether there are more.
    const names = sql.namesFrom.all(namespace, from, `${prefix}${AFTER_ALL}`, limit + 1)
    const shown = names.slice(0, limit)
    const [first, last] = [shown[0]?.name, shown.at(-1)?.name]
    if (first === undefined || last === undefined) return { items: [], next: null }
    return { items: read(sql, namespace, [first, last], nowMs), next: names.length > limit ? last : null }
  })
}

export function sessions(
  sql: Statements,
  namespace: string,
  { cursor, limit }: PageRequest,
  nowMs: number,
): Page<SessionState> {
  // A cursor is the public half of an id; the whole id comes after it.
  const after = cursor === undefined ? '' : `${cursor}${AFTER_ALL}`
  const found = sql.sessions.all(namespace, after, nowMs, limit + 1)
  const items = found
    .slice(0, limit)
    .map(({ expires_at, ...shown }) => ({ ...shown, expiresInMs: expires_at - nowMs }))
  return { items, next: found.length > limit ? (items.at(-1)?.id ?? null) : null }
}

function inSnapshot<T>(sql: Statements, look: () => T): T {
  sql.beginReading.run()
  try {
    return look()
  } finally {
    sql.endReading.run()
  }
}

/** A name while its rows are being gathered. */
interface Gathered extends NameState {
  readonly holders: HolderState[]
  readonly waiters: WaiterState[]
  data?: string
  closedForMs: number
}

/** All of them from the first name to the last. */
function read(
  sql: Statements,
  namespace: string,
  range: readonly [first: string, last: string],
  nowMs: number,
  holdersOnly = false,
): NameState[] {
  const found = new Map<string, Gathered>()
  const gathered = ({ name, capacity }: { readonly name: string; readonly capacity: number }): Gathered => {
    const state = found.get(name) ?? { name, capacity, holders: [], waiters: [], closedForMs: 0, atMs: nowMs }
    found.set(name, state)
    return state
  }
  const close = (state: Gathered, untilMs: number) => {
    state.closedForMs = Math.max(state.closedForMs, untilMs - nowMs)
  }
  for (const row of sql.holders.all(namespace, ...range)) {
    const state = gathered(row)
    const expiresInMs = row.expires_at - nowMs
    if (expiresInMs > 0)
      state.holders.push({
        ...claimState(row),
        token: BigInt(row.token ?? 0),
        heldForMs: nowMs - row.since,
        expiresInMs,
      })
    else if (row.lock_delay_ms > 0) close(state, row.expires_at + row.lock_delay_ms)
  }
  for (const row of holdersOnly ? [] : sql.waiters.all(namespace, ...range, nowMs))
    gathered(row).waiters.push({ ...claimState(row), waitingForMs: nowMs - row.since })
  for (const row of sql.names.all(namespace, ...range)) {
    const state = gathered(row)
    if (row.data !== null) state.data = row.data
    close(state, row.closed_until ?? 0)
  }
  return [...found.values()].filter(isInUse).sort((a, b) => compareNames(a.name, b.name))
}

/** False if nothing is left of the name but what has expired. */
function isInUse({ holders, waiters, data, closedForMs }: Gathered): boolean {
  return holders.length + waiters.length > 0 || data !== undefined || closedForMs > 0
}
