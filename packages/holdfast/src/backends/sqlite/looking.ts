/**
 * What operators see, read from one snapshot. Readers do not wait for writers, so nothing is cleaned up on the way: what has
 * expired is left out here, and the lock-delay that it leaves behind is worked out.
 */
import { compareNames } from '../../base/names.ts'
import type {
  ClaimState,
  HolderState,
  NameState,
  Page,
  PageRequest,
  SessionState,
  WaiterState,
} from '../../spi.ts'
import type { HolderRow, NameKey, NameRow, Statements, WaiterRow } from './statements.ts'

/** Longer than what any name can have after its prefix, and after all of it in byte order. */
export const AFTER_ALL = '\u{10FFFF}'.repeat(64)

export function inspect(
  sql: Statements,
  { namespace, name }: NameKey,
  nowMs: number,
  holdersOnly = false,
): NameState | null {
  return inSnapshot(sql, () => read(sql, namespace, [name, name], nowMs, holdersOnly))[0] ?? null
}

/** In the order of the names' bytes, which is how SQLite compares text. */
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
  const items = found.slice(0, limit).map(({ id, holder, ttl_ms, expires_at }) => ({
    id,
    holder,
    ttlMs: ttl_ms,
    expiresInMs: expires_at - nowMs,
  }))
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

/** All of them from the first name to the last. */
function read(
  sql: Statements,
  namespace: string,
  range: readonly [first: string, last: string],
  nowMs: number,
  holdersOnly = false,
): NameState[] {
  const found = new Map<string, NameBuilder>()
  const builderOf = (name: string): NameBuilder => {
    let builder = found.get(name)
    if (builder === undefined) {
      builder = new NameBuilder(name)
      found.set(name, builder)
    }
    return builder
  }
  for (const row of sql.holders.all(namespace, ...range)) builderOf(row.name).addHolder(row, nowMs)
  for (const row of holdersOnly ? [] : sql.waiters.all(namespace, ...range, nowMs))
    builderOf(row.name).addWaiter(row, nowMs)
  for (const row of sql.names.all(namespace, ...range)) builderOf(row.name).addRemains(row)
  return [...found.values()]
    .map((builder) => builder.finish(nowMs))
    .filter((state) => state !== null)
    .sort((a, b) => compareNames(a.name, b.name))
}

/** A name while its rows are being gathered. */
class NameBuilder {
  readonly #name: string
  readonly #holders: HolderState[] = []
  readonly #waiters: WaiterState[] = []
  #capacity = 0
  #data: string | null = null
  #closedUntilMs = 0

  constructor(name: string) {
    this.#name = name
  }

  addHolder(row: HolderRow, nowMs: number): void {
    if (row.expires_at <= nowMs) {
      this.#close(row.lock_delay_ms > 0 ? row.expires_at + row.lock_delay_ms : 0)
      this.#capacity ||= Number(row.capacity)
      return
    }
    this.#capacity = Number(row.capacity)
    this.#holders.push({
      ...claimState(row),
      token: row.token,
      heldForMs: nowMs - row.held_since,
      expiresInMs: row.expires_at - nowMs,
    })
  }

  addWaiter(row: WaiterRow, nowMs: number): void {
    this.#capacity = row.capacity
    this.#waiters.push({ ...claimState(row), waitingForMs: nowMs - row.waiting_since })
  }

  addRemains(row: NameRow): void {
    this.#capacity ||= row.capacity
    this.#data = row.data
    this.#close(row.closed_until ?? 0)
  }

  #close(untilMs: number): void {
    this.#closedUntilMs = Math.max(this.#closedUntilMs, untilMs)
  }

  /** Null: nothing of it is left. */
  finish(nowMs: number): NameState | null {
    const closedForMs = Math.max(0, this.#closedUntilMs - nowMs)
    const data = this.#data
    if (this.#holders.length + this.#waiters.length === 0 && data === null && closedForMs === 0) return null
    return {
      name: this.#name,
      capacity: this.#capacity,
      holders: this.#holders,
      waiters: this.#waiters,
      ...(data !== null && { data }),
      closedForMs,
      atMs: nowMs,
    }
  }
}

function claimState(row: HolderRow | WaiterRow): ClaimState {
  const { id, holder, owner, mode, note, session } = row
  return {
    id,
    holder,
    ...(owner !== null && { owner }),
    mode,
    weight: Number(row.weight),
    ...(note !== null && { note }),
    session,
    ttlMs: row.ttl_ms,
  }
}
