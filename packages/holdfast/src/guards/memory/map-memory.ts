/** A guard's memory, in maps: a copy for one transaction, or what has been committed. */
import type { Clock } from '../../base/clock.ts'
import type { GuardMemory } from '../checkpoint.ts'
import type { Floor, Remembered } from '../rule.ts'

interface TouchedName extends Remembered {
  /** On the wall clock, as guards that outlive a process must have it. */
  readonly touchedMs: number
}

export class MapMemory implements GuardMemory {
  readonly names: Map<string, TouchedName>
  readonly floors: Map<string, Floor>
  readonly #clock: Clock
  private pinned: string | null

  constructor(clock: Clock, base?: MapMemory) {
    this.#clock = clock
    this.names = new Map(base?.names)
    this.floors = new Map(base?.floors)
    this.pinned = base?.pinned ?? null
  }

  pinnedIssuer(): string | null {
    return this.pinned
  }

  pinIssuer(issuer: string): void {
    this.pinned = issuer
  }

  recall(name: string): Remembered | null {
    return this.names.get(name) ?? null
  }

  floorOf(issuer: string): Floor | null {
    return this.floors.get(issuer) ?? null
  }

  remember(name: string, remembered: Remembered): void {
    this.names.set(name, { ...remembered, touchedMs: this.#clock.wallMs() })
  }

  forget(untouchedForMs: number): number {
    const untilMs = this.#clock.wallMs() - untouchedForMs
    const forgotten = [...this.names].filter(([, { touchedMs }]) => touchedMs <= untilMs)
    for (const [name, { highest }] of forgotten) {
      const { issuer, token, grant } = highest
      const floor = this.floors.get(issuer)
      if (floor === undefined || floor.token < token) this.floors.set(issuer, { token, grant })
      this.names.delete(name)
    }
    return forgotten.length
  }
}
