/**
 * What operators see, of one moment. Nobody is kept waiting and nothing is cleaned up on the way: what has expired is
 * left out here, and the lock-delay that it leaves behind is worked out.
 */
import type { Row } from '../../clients/postgres/index.ts'
import { compareNames } from '../../core/names.ts'
import type { HolderState, Mode, NameState, WaiterState } from '../../spi.ts'

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

/** See `show` in `statements.ts`. */
type ShownRow = readonly [
  kind: 'holder' | 'waiter' | 'name',
  name: string,
  id: string,
  holder: string,
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
    this.#atMs = Math.max(this.#atMs, Number(row[13]))
    if (row[0] === 'holder') this.#addHolder(row)
    else if (row[0] === 'waiter') this.#addWaiter(row)
    else {
      this.#capacity ||= Number(row[6])
      this.#data = row[8]
      this.#close(Number(row[10] ?? 0))
    }
  }

  #addHolder([
    ,
    ,
    id,
    holder,
    mode,
    weight,
    capacity,
    token,
    note,
    since,
    left,
    delay,
    isOver,
  ]: ShownRow): void {
    const expiresInMs = Number(left ?? 0)
    if (isOver) return
    if (expiresInMs <= 0) {
      this.#capacity ||= Number(capacity)
      if (Number(delay) > 0) this.#close(expiresInMs + Number(delay))
      return
    }
    this.#capacity = Number(capacity)
    this.#holders.push({
      id,
      holder,
      mode,
      weight: Number(weight),
      token: BigInt(token),
      ...(note !== null && { note }),
      heldForMs: Number(since),
      expiresInMs,
    })
  }

  #addWaiter([, , id, holder, mode, weight, capacity, place, note, since]: ShownRow): void {
    this.#capacity = Number(capacity)
    const waiter = {
      id,
      holder,
      mode,
      weight: Number(weight),
      waitingForMs: Number(since),
      place: BigInt(place),
    }
    this.#waiters.push(note === null ? waiter : { ...waiter, note })
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
