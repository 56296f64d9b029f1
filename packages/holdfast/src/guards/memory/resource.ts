/** A map with transactions, and beside the data what each guard has learnt. */
import type { Clock } from '../../base/clock.ts'
import { InvalidArgumentError } from '../../base/errors.ts'
import { Turns } from '../../base/turns.ts'
import { type GuardMaps, MapMemory } from './map-memory.ts'
import { Overlay } from './overlay.ts'

/** Sees its own writes; nobody else does until it has succeeded. */
export interface MemoryTx<Value = unknown> {
  get(key: string): Value | undefined
  set(key: string, value: Value): void
  delete(key: string): void
}

export class MapResource<Value = unknown> {
  readonly #data = new Map<string, Value>()
  readonly #guards = new Map<string, GuardMaps>()
  readonly #turns = new Turns()

  /** What has been committed, read past every guard. */
  get(key: string): Value | undefined {
    return this.#data.get(key)
  }

  /** What the guard of this name has committed here. */
  mapsOf(guard: string): GuardMaps {
    let maps = this.#guards.get(guard)
    if (maps === undefined) {
      maps = { names: new Map(), issuers: new Map() }
      this.#guards.set(guard, maps)
    }
    return maps
  }

  /** Applied as a whole when `body` returns, dropped when it throws or the signal has aborted. One at a time. */
  transaction<T>(
    body: (tx: MemoryTx<Value>) => Promise<T> | T,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<T> {
    return this.#turns.take(async () => {
      const tx = new MemoryTransaction(this, this.#data)
      try {
        const result = await body(tx)
        options.signal?.throwIfAborted()
        tx.apply()
        return result
      } finally {
        tx.end()
      }
    }, options.signal)
  }
}

export class MemoryTransaction<Value> implements MemoryTx<Value> {
  readonly resource: MapResource<Value>
  readonly #data: Overlay<Value>
  readonly #memories = new Map<string, MapMemory>()
  #isOpen = true

  constructor(resource: MapResource<Value>, data: Map<string, Value>) {
    this.resource = resource
    this.#data = new Overlay(data)
  }

  get(key: string): Value | undefined {
    return this.#open.#data.get(key)
  }

  set(key: string, value: Value): void {
    this.#open.#data.set(key, value)
  }

  delete(key: string): void {
    this.#open.#data.delete(key)
  }

  /** What the guard of this name remembers, within the transaction. */
  memoryOf(guard: string, clock: Clock): MapMemory {
    let memory = this.#open.#memories.get(guard)
    if (memory === undefined) {
      memory = new MapMemory(this.resource.mapsOf(guard), clock)
      this.#memories.set(guard, memory)
    }
    return memory
  }

  apply(): void {
    this.#data.apply()
    for (const memory of this.#memories.values()) memory.apply()
  }

  end(): void {
    this.#isOpen = false
  }

  get #open(): this {
    if (!this.#isOpen) throw new InvalidArgumentError('tx', 'belongs to a transaction that is over.')
    return this
  }
}
