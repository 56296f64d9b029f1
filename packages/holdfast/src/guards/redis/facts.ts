/**
 * What a guard has read of its memory, and what a decision on it would change. The rule is decided here, in the one place
 * where it is written (`rule.ts`); the script that applies the decision first makes sure that everything it was decided on
 * is still so. If not, it changes nothing and answers with what is there now, and the decision is made again.
 */
import type { GuardMemory } from '../checkpoint.ts'
import type { CheckedProof } from '../proofs.ts'
import type { Floor, Remembered } from '../rule.ts'
import { floorField, PINNED, parseFloor, parseRemembered, rememberedText } from './layout.ts'

export interface Field {
  readonly hash: 'names' | 'issuers'
  readonly field: string
}

/** Fields as they were read; the empty text stands for none. */
export class Facts {
  readonly #values: ReadonlyMap<string, { readonly field: Field; readonly text: string }>

  constructor(entries: readonly { readonly field: Field; readonly text: string }[]) {
    this.#values = new Map(entries.map((entry) => [keyOf(entry.field), entry]))
  }

  get entries(): readonly { readonly field: Field; readonly text: string }[] {
    return [...this.#values.values()]
  }

  get(field: Field): string | null {
    const text = this.#values.get(keyOf(field))?.text ?? ''
    return text === '' ? null : text
  }

  /** The same after `changes`. */
  with(changes: readonly { readonly field: Field; readonly text: string }[]): Facts {
    return new Facts([...this.entries, ...changes])
  }
}

/** All that the rule asks about these proofs. */
export function fieldsOf(proofs: readonly CheckedProof[]): readonly Field[] {
  const names = new Set(proofs.map(({ fence }) => fence.name))
  const issuers = new Set(proofs.map(({ fence }) => fence.issuer))
  return [
    { hash: 'issuers', field: PINNED },
    ...[...names].map((field) => ({ hash: 'names', field }) as const),
    ...[...issuers].map((issuer) => ({ hash: 'issuers', field: floorField(issuer) }) as const),
  ]
}

/** A memory over facts, whose changes are written by a script afterwards. */
export class FactMemory implements GuardMemory {
  readonly #facts: Facts
  readonly #changes = new Map<string, { readonly field: Field; readonly text: string }>()
  readonly #touched = new Set<string>()

  constructor(facts: Facts) {
    this.#facts = facts
  }

  get changes(): readonly { readonly field: Field; readonly text: string }[] {
    return [...this.#changes.values()].filter(({ field, text }) => this.#facts.get(field) !== text)
  }

  get touched(): readonly string[] {
    return [...this.#touched]
  }

  pinnedIssuer(): string | null {
    return this.#get({ hash: 'issuers', field: PINNED })
  }

  pinIssuer(issuer: string): void {
    this.#set({ hash: 'issuers', field: PINNED }, issuer)
  }

  recall(name: string): Remembered | null {
    const text = this.#get({ hash: 'names', field: name })
    return text === null ? null : parseRemembered(name, text)
  }

  floorOf(issuer: string): Floor | null {
    const text = this.#get({ hash: 'issuers', field: floorField(issuer) })
    return text === null ? null : parseFloor(text)
  }

  remember(name: string, remembered: Remembered): void {
    this.#set({ hash: 'names', field: name }, rememberedText(remembered))
    this.#touched.add(name)
  }

  #get(field: Field): string | null {
    return this.#changes.get(keyOf(field))?.text ?? this.#facts.get(field)
  }

  #set(field: Field, text: string): void {
    this.#changes.set(keyOf(field), { field, text })
  }
}

function keyOf({ hash, field }: Field): string {
  return `${hash} ${field}`
}
