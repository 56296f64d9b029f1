/**
 * What operators see, of one moment. Nobody is kept waiting and nothing is cleaned up on the way: what has expired is
 * left out here, and the lock-delay that it leaves behind is worked out.
 */

import { compareNames } from '../../base/names.ts'
import type { Row } from '../../clients/postgres/index.ts'
import type { ClaimState, HolderState, Mode, NameState, Page, WaiterState } from '../../spi.ts'

/** In the order of the names' bytes. */
export function statesOf(rows: readonly Row[]): NameState[] {
  const found = new Map<string, Sketch>()
  for (const row of rows as readonly ShownRow[]) {
    const name = row[1]
    const sketch = found.get(name) ?? new Sketch(name)
    found.set(name, sketch)
    sketch.add(row)
  }
  return [...found.values()]
    .map((sketch) => sketch.finish())
    .filter((state) => state !== null)
    .sort((a, b) => compareNames(a.name, b.name))
}

/** The rows of `list_names`. */
export function pageOfStates(rows: readonly Row[]): Page<NameState> {
  const [first] = rows
  const next = first?.[0] === 'next' ? String(first[1]) : null
  return { items: statesOf(next === null ? rows : rows.slice(1)), next }
}

/** See `sql/looking.ts`. */
type ShownRow = readonly [
  kind: 'holder' | 'waiter' | 'name',
  name: string,
  id: string,
  holder: string,
  owner: string | null,
  session: string,
  ttlMs: string,
  mode: Mode,
  weight: string,
  capacity: string,
  tokenOrPlace: string,
  noteOrData: string | null,
  sinceMs: string,
  leftMs: string | null,
  lockDelayMs: string,
  isOver: boolean,
  atMs: string,
]

function claimOf(row: ShownRow): ClaimState {
  const [, , id, holder, owner, session, ttlMs, mode, weight, , , note] = row
  return {
    id,
    holder,
    ...(owner !== null && { owner }),
    session,
    ttlMs: Number(ttlMs),
    mode,
    weight: Number(weight),
    ...(note !== null && { note }),
  }
}

/** A name while its rows are being gathered. */
class Sketch {
  readonly #name: string
  readonly #holders: HolderState[] = []
  readonly #waiters: (WaiterState & { readonly place: bigint })[] = []
  #capacity = 0
  #data: string | null = null
  #closedForMs = 0
  #atMs = 0

  constructor(name: string) {
    this.#name = name
  }

  add(row: ShownRow): void {
    const [kind, , , , , , , , , capacity, , data, , leftMs, , , atMs] = row
    this.#atMs = Math.max(this.#atMs, Number(atMs))
    if (kind === 'holder') this.#addHolder(row)
    else if (kind === 'waiter') this.#addWaiter(row)
    else {
      this.#capacity ||= Number(capacity)
      this.#data = data
      this.#close(Number(leftMs ?? 0))
    }
  }

  #addHolder(row: ShownRow): void {
    const [, , , , , , , , , capacity, token, , sinceMs, leftMs, lockDelayMs, isOver] = row
    const expiresInMs = Number(leftMs ?? 0)
    if (isOver) return
    if (expiresInMs <= 0) {
      this.#capacity ||= Number(capacity)
      if (Number(lockDelayMs) > 0) this.#close(expiresInMs + Number(lockDelayMs))
      return
    }
    this.#capacity = Number(capacity)
    const claim = claimOf(row)
    this.#holders.push({ ...claim, token: BigInt(token), heldForMs: Number(sinceMs), expiresInMs })
  }

  #addWaiter(row: ShownRow): void {
    const [, , , , , , , , , capacity, place, , sinceMs] = row
    this.#capacity = Number(capacity)
    this.#waiters.push({ ...claimOf(row), waitingForMs: Number(sinceMs), place: BigInt(place) })
  }

  #close(forMs: number): void {
    this.#closedForMs = Math.max(this.#closedForMs, forMs)
  }

  /** Null: nothing of it is left. */
  finish(): NameState | null {
    const data = this.#data
    const inUse = this.#holders.length + this.#waiters.length > 0
    if (!inUse && data === null && this.#closedForMs === 0) return null
    return {
      name: this.#name,
      capacity: this.#capacity,
      holders: this.#holders.sort((a, b) => Number((a.token ?? 0n) - (b.token ?? 0n))),
      waiters: this.#waiters
        .sort((a, b) => Number(a.place - b.place))
        .map(({ place: _place, ...waiter }) => waiter),
      ...(data !== null && { data }),
      closedForMs: this.#closedForMs,
      atMs: this.#atMs,
    }
  }
}
