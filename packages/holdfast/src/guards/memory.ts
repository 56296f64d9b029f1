/**
 * A guard over a map in this process, for tests and examples. What it remembers ends with the process, and so does
 * what it protects: for anything that outlives a restart, use a guard that keeps its memory beside the data (T41, check, then write).
 *
 * ```ts
 * const accounts = new MemoryResource<number>()
 * const guard = memoryGuard({ resource: accounts })
 *
 * await guard.run(lease, (tx) => tx.set('42', (tx.get('42') ?? 0) - 10))
 * ```
 */
import type { Clock } from '../base/clock.ts'
import { InvalidArgumentError } from '../base/errors.ts'
import { pass } from './checkpoint.ts'
import type { Guard, GuardOptions } from './guard.ts'
import { type Entry, GuardBase } from './guard-base.ts'
import type { MapMemory } from './memory/map-memory.ts'
import { MapResource, MemoryTransaction, type MemoryTx } from './memory/resource.ts'
import type { Remembered } from './rule.ts'
import { checkGuardOptions, type GuardSettings } from './settings.ts'

export type { EnterOptions, Guard, GuardOptions, Proof, RunOptions } from './guard.ts'
export type { MemoryTx } from './memory/resource.ts'

/** A map with transactions: what a `memoryGuard` protects. */
export interface MemoryResource<Value = unknown> {
  /** The committed value, read past every guard. */
  get(key: string): Value | undefined
  /** Applied as a whole when `body` returns, dropped when it throws or the signal has aborted. One at a time. */
  transaction<T>(
    body: (tx: MemoryTx<Value>) => Promise<T> | T,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<T>
}

export const MemoryResource: new <Value = unknown>() => MemoryResource<Value> = MapResource

export interface MemoryGuardOptions<Value> extends GuardOptions {
  /** The resource to protect. Default: one of the guard's own. */
  readonly resource?: MemoryResource<Value>
  readonly clock?: Clock
}

export interface MemoryGuard<Value = unknown> extends Guard<MemoryTx<Value>> {
  readonly resource: MemoryResource<Value>
}

export function memoryGuard<Value = unknown>(options: MemoryGuardOptions<Value> = {}): MemoryGuard<Value> {
  const settings = checkGuardOptions(options, ['resource'])
  const { resource = new MapResource<Value>() } = options
  if (!(resource instanceof MapResource))
    throw new InvalidArgumentError('resource', 'must be a MemoryResource.')
  return new MapGuard(resource, settings)
}

class MapGuard<Value> extends GuardBase<MemoryTx<Value>> implements MemoryGuard<Value> {
  readonly resource: MapResource<Value>

  constructor(resource: MapResource<Value>, settings: GuardSettings) {
    super(settings)
    this.resource = resource
  }

  protected runEntered<T>(
    { proofs, once }: Entry,
    effect: (tx: MemoryTx<Value>) => Promise<T> | T,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const guarded = async (tx: MemoryTx<Value>) => {
      const memory = this.#memoryIn(tx)
      if (this.isForgettingDue()) memory.forget(this.settings.forgetAfterMs)
      pass(memory, this.settings, proofs, once)
      return await effect(tx)
    }
    return this.resource.transaction(guarded, { signal })
  }

  protected async enterIn(tx: MemoryTx<Value>, { proofs, once }: Entry): Promise<void> {
    pass(this.#memoryIn(tx), this.settings, proofs, once)
  }

  protected async recall(name: string): Promise<Remembered | null> {
    return this.resource.memoryOf(this.name)?.recall(name) ?? null
  }

  protected forget(untouchedForMs: number): Promise<number> {
    return this.resource.transaction((tx) => this.#memoryIn(tx).forget(untouchedForMs))
  }

  #memoryIn(tx: MemoryTx<Value>): MapMemory {
    if (!(tx instanceof MemoryTransaction) || tx.resource !== this.resource)
      throw new InvalidArgumentError('tx', "must be a transaction of the guard's resource.")
    return tx.memoryOf(this.name, this.settings.clock)
  }
}
