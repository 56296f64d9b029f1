/**
 * What operators see, read from one snapshot. Readers wait for nobody, so nothing is cleaned up on the way: what has
 * expired is left out here, and the lock-delay that it leaves behind is worked out.
 */
import { compareNames } from '../../core/names.ts'
import type { HolderState, NameState, WaiterState } from '../../spi.ts'
import type { HolderRow, NamePlace, NameRow, Statements, WaiterRow } from './statements.ts'

/** Longer than what any name can have after its prefix, and after all of it in byte order. */
const AFTER_ALL = '\u{10FFFF}'.repeat(64)

export function inspect(
  sql: Statements,
  { namespace, name }: NamePlace,
  nowMs: number,
  holdersOnly = false,
): NameState | null {
  // The next string in byte order; no name has control characters.
  return read(sql, namespace, name, `${name}\0`, nowMs, holdersOnly)[0] ?? null
}

/** In the order of the names' bytes, which is how SQLite compares text. */
export function list(sql: Statements, namespace: string, prefix: string, nowMs: number): NameState[] {
  return read(sql, namespace, prefix, `${prefix}${AFTER_ALL}`, nowMs)
}

function read(
  sql: Statements,
  namespace: string,
  from: string,
  before: string,
  nowMs: number,
  holdersOnly = false,
): NameState[] {
  const found = new Map<string, Sketch>()
  const sketchOf = (name: string): Sketch => {
    let sketch = found.get(name)
    if (sketch === undefined) {
      sketch = new Sketch(name)
      found.set(name, sketch)
    }
    return sketch
  }
  sql.beginReading.run()
  try {
    for (const row of sql.holders.all(namespace, from, before)) sketchOf(row.name).addHolder(row, nowMs)
    for (const row of holdersOnly ? [] : sql.waiters.all(namespace, from, before, nowMs))
      sketchOf(row.name).addWaiter(row, nowMs)
    for (const row of sql.names.all(namespace, from, before)) sketchOf(row.name).addRemains(row)
  } finally {
    sql.endReading.run()
  }
  return [...found.values()]
    .map((sketch) => sketch.finish(nowMs))
    .filter((state) => state !== null)
    .sort((a, b) => compareNames(a.name, b.name))
}

/** A name while its rows are being gathered. */
class Sketch {
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
    const { id, holder, mode, token, note } = row
    this.#capacity = Number(row.capacity)
    this.#holders.push({
      id,
      holder,
      mode,
      weight: Number(row.weight),
      token,
      ...(note !== null && { note }),
      heldForMs: nowMs - row.held_since,
      expiresInMs: row.expires_at - nowMs,
    })
  }

  addWaiter(row: WaiterRow, nowMs: number): void {
    const { id, holder, mode, weight, note } = row
    this.#capacity = row.capacity
    const waitingForMs = nowMs - row.waiting_since
    this.#waiters.push({ id, holder, mode, weight, ...(note !== null && { note }), waitingForMs })
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
