/** A map with transactions, and beside the data what each guard has learnt. */
import type { Clock } from '../../base/clock.ts'
import { InvalidArgumentError } from '../../base/errors.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import { MapMemory } from './map-memory.ts'

/** Sees its own writes; others see them when it has succeeded. */
export interface MemoryTx<Value = unknown> {
  get(key: string): Value | undefined
  set(key: string, value: Value): void
  delete(key: string): void
}

/** The data, and the memory of each guard by its name. */
interface Content<Value> {
  readonly data: Map<string, Value>
  readonly guards: Map<string, MapMemory>
}

export class MapResource<Value = unknown> {
  #committed: Content<Value> = { data: new Map(), guards: new Map() }
  readonly #queue = new SerialQueue()

  /** The committed value, read past every guard. */
  get(key: string): Value | undefined {
    return this.#committed.data.get(key)
  }

  /** The committed memory of the guard of this name. */
  memoryOf(guard: string): MapMemory | undefined {
    return this.#committed.guards.get(guard)
  }

  /** Applied as a whole when `body` returns, dropped when it throws or the signal has aborted. One at a time. */
  transaction<T>(
    body: (tx: MemoryTx<Value>) => Promise<T> | T,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<T> {
    return this.#queue.run(async () => {
      const { data, guards } = this.#committed
      const tx = new MemoryTransaction(this, { data: new Map(data), guards: new Map(guards) })
      try {
        const result = await body(tx)
        options.signal?.throwIfAborted()
        this.#committed = tx.content
        return result
      } finally {
        tx.end()
      }
    }, options)
  }
}

/** Works on copies, which replace what was committed when it succeeds. */
export class MemoryTransaction<Value> implements MemoryTx<Value> {
  readonly resource: MapResource<Value>
  readonly #content: Content<Value>
  readonly #copied = new Set<string>()
  #isOpen = true

  constructor(resource: MapResource<Value>, content: Content<Value>) {
    this.resource = resource
    this.#content = content
  }

  get(key: string): Value | undefined {
    return this.content.data.get(key)
  }

  set(key: string, value: Value): void {
    this.content.data.set(key, value)
  }

  delete(key: string): void {
    this.content.data.delete(key)
  }

  /** The memory of the guard of this name, within the transaction. */
  memoryOf(guard: string, clock: Clock): MapMemory {
    const { guards } = this.content
    if (!this.#copied.has(guard)) guards.set(guard, new MapMemory(clock, guards.get(guard)))
    this.#copied.add(guard)
    return guards.get(guard) as MapMemory
  }

  get content(): Content<Value> {
    if (!this.#isOpen) throw new InvalidArgumentError('tx', 'belongs to a transaction that is over.')
    return this.#content
  }

  end(): void {
    this.#isOpen = false
  }
}
