/**
 * What a session holds, waits for or asks for, as this process knows it. All of it is asked for over connections of this
 * process alone, each of which does one thing after the other, so nobody else knows better.
 *
 *   asking ──granted──▶ held          asking ──busy, failed──▶ (forgotten)
 *   waiting ──its turn──▶ held        waiting ──abandoned, failed──▶ (forgotten)
 *   held ──release, abandon, force release──▶ leaving ──done──▶ (forgotten)
 *
 * PostgreSQL would grant a lock that a session has to the same session again (T70). So of each key the session's own
 * connection has the lock at most once: for one exclusive claim, or for all who share it together.
 */
import { publicIdOf } from '../../base/ids.ts'
import type { Claim } from '../../spi.ts'
import type { LockConnection } from './lock-connection.ts'

export type LockMode = 'exclusive' | 'shared'

export interface Holding extends Claim {
  readonly id: string
  readonly key: string
  readonly mode: LockMode
  /** Where the session's own connection records it. */
  slot: number
  state: 'asking' | 'waiting' | 'held' | 'leaving'
  token: bigint
  /** The connection that it waited on and that has the lock since; otherwise the session's own has it. */
  connection: LockConnection | undefined
  /** Settles when the state is another one than asking, waiting or leaving. Whoever waited for it may have been refused. */
  settled: Promise<unknown>
}

/** Who uses a key on the session's own connection. */
interface Use {
  readonly name: string
  readonly mode: LockMode
  readonly holdings: Set<Holding>
}

export class Holdings {
  readonly #byAttempt = new Map<string, Holding>()
  readonly #uses = new Map<string, Use>()
  readonly #slots = new Slots()

  get(attempt: string): Holding | undefined {
    return this.#byAttempt.get(attempt)
  }

  byId(id: string): Holding | undefined {
    for (const holding of this.#byAttempt.values()) if (holding.id === id) return holding
    return undefined
  }

  all(): IterableIterator<Holding> {
    return this.#byAttempt.values()
  }

  add({ name, attempt }: Claim, key: string, mode: LockMode, state: 'asking' | 'waiting'): Holding {
    const holding: Holding = {
      name,
      attempt,
      id: publicIdOf(attempt),
      key,
      mode,
      slot: 0,
      state,
      token: 0n,
      connection: undefined,
      settled: Promise.resolve(),
    }
    this.#byAttempt.set(attempt, holding)
    return holding
  }

  remove(holding: Holding): void {
    if (this.#byAttempt.get(holding.attempt) === holding) this.#byAttempt.delete(holding.attempt)
  }

  useOf(key: string): Use | undefined {
    return this.#uses.get(key)
  }

  use(holding: Holding): void {
    const { key, name, mode } = holding
    holding.slot = this.#slots.take(key)
    const use = this.#uses.get(key) ?? { name, mode, holdings: new Set<Holding>() }
    this.#uses.set(key, use)
    use.holdings.add(holding)
  }

  /** It is granted on the session's own connection, which has recorded it. */
  granted(holding: Holding, token: bigint): void {
    holding.state = 'held'
    holding.token = token
    this.#slots.record(holding.slot, holding.key)
  }

  /** Whether others of this session share the key still. */
  unuse(holding: Holding): boolean {
    const use = this.#uses.get(holding.key)
    if (use === undefined || !use.holdings.delete(holding)) return false
    const isShared = use.holdings.size > 0
    // Who leaves others behind takes its record along.
    if (isShared && holding.state === 'leaving') this.#slots.record(holding.slot, '')
    this.#slots.giveBack(holding.slot)
    if (!isShared) this.#uses.delete(holding.key)
    return isShared
  }

  clear(): void {
    this.#byAttempt.clear()
    this.#uses.clear()
  }
}

/**
 * Records stay behind in their slots after a release, and would count again with the lock of their key. So whoever takes
 * that lock next takes that slot.
 */
class Slots {
  /** The key that each slot's record has; none in those of connections that waited. */
  readonly #recorded = ['']
  readonly #free = new Set<number>()
  readonly #freeByKey = new Map<string, number>()

  take(key: string): number {
    const slot = this.#freeByKey.get(key) ?? this.#free.values().next().value ?? this.#recorded.push('') - 1
    this.#free.delete(slot)
    this.#freeByKey.delete(this.#recorded[slot] ?? '')
    return slot
  }

  record(slot: number, key: string): void {
    this.#recorded[slot] = key
  }

  giveBack(slot: number): void {
    const key = this.#recorded[slot] ?? ''
    this.#free.add(slot)
    if (key !== '') this.#freeByKey.set(key, slot)
  }
}
