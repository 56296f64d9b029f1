/** What a guard remembers, in maps. */
import type { Clock } from '../../base/clock.ts'
import type { GuardMemory } from '../checkpoint.ts'
import type { Floor, Remembered } from '../rule.ts'
import { Overlay } from './overlay.ts'

interface TouchedName extends Remembered {
  /** On the wall clock, as guards that outlive a process must have it. */
  readonly touchedMs: number
}

interface KnownIssuer {
  readonly pinned: boolean
  readonly floor: Floor | null
}

/** What has been committed. */
export interface GuardMaps {
  readonly names: Map<string, TouchedName>
  readonly issuers: Map<string, KnownIssuer>
}

/** The same within a transaction. */
export class MapMemory implements GuardMemory {
  readonly #names: Overlay<TouchedName>
  readonly #issuers: Overlay<KnownIssuer>
  readonly #clock: Clock

  constructor(maps: GuardMaps, clock: Clock) {
    this.#names = new Overlay(maps.names)
    this.#issuers = new Overlay(maps.issuers)
    this.#clock = clock
  }

  pinnedIssuer(): string | null {
    const found = this.#issuers.entries().find(([, { pinned }]) => pinned)
    return found === undefined ? null : found[0]
  }

  pinIssuer(issuer: string): void {
    this.#issuers.set(issuer, { pinned: true, floor: this.floorOf(issuer) })
  }

  recall(name: string): Remembered | null {
    return this.#names.get(name) ?? null
  }

  floorOf(issuer: string): Floor | null {
    return this.#issuers.get(issuer)?.floor ?? null
  }

  remember(name: string, remembered: Remembered): void {
    this.#names.set(name, { ...remembered, touchedMs: this.#clock.wallMs() })
  }

  forget(untouchedForMs: number): number {
    const untilMs = this.#clock.wallMs() - untouchedForMs
    const forgotten = this.#names.entries().filter(([, { touchedMs }]) => touchedMs <= untilMs)
    for (const [name, { highest }] of forgotten) {
      this.#raiseFloor(highest.issuer, highest)
      this.#names.delete(name)
    }
    return forgotten.length
  }

  apply(): void {
    this.#names.apply()
    this.#issuers.apply()
  }

  #raiseFloor(issuer: string, { token, grant }: Floor): void {
    const known = this.#issuers.get(issuer)
    if (known?.floor != null && known.floor.token >= token) return
    this.#issuers.set(issuer, { pinned: known?.pinned ?? false, floor: { token, grant } })
  }
}
