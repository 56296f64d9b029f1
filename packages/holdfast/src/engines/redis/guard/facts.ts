/**
 * The facts that a guard has read of its memory, and what a decision makes of them. The rule is decided outside of the
 * script, by `rule.ts`. The script that applies the decision compares the facts first. If one differs, it changes nothing
 * and answers with what is there now, and the guard decides again.
 */
import type { Decision, GuardKnowledge } from '../../../guards/checkpoint.ts'
import type { CheckedProof } from '../../../guards/proofs.ts'
import { parseRemembered, rememberedText } from '../../../guards/remembered-text.ts'
import type { Floor, Remembered } from '../../../guards/rule.ts'
import { floorField, PINNED, parseFloor } from './layout.ts'

export interface Field {
  readonly hash: 'names' | 'issuers'
  readonly field: string
}

/** The empty text stands for none. */
export interface Fact extends Field {
  readonly text: string
}

/** All that the rule asks about these proofs. */
export function fieldsOf(proofs: readonly CheckedProof[]): readonly Field[] {
  if (proofs.length === 0) return []
  const issuers = new Set(proofs.map(({ fence }) => fence.issuer))
  return [
    { hash: 'issuers', field: PINNED },
    ...proofs.map(({ fence }) => ({ hash: 'names', field: fence.name }) as const),
    ...[...issuers].map((issuer) => ({ hash: 'issuers', field: floorField(issuer) }) as const),
  ]
}

export class Facts implements GuardKnowledge {
  readonly #byField: ReadonlyMap<string, Fact>

  constructor(facts: readonly Fact[]) {
    this.#byField = new Map(facts.map((fact) => [keyOf(fact), fact]))
  }

  get all(): readonly Fact[] {
    return [...this.#byField.values()]
  }

  /** The writes that lead from `before` to here. */
  changesSince(before: Facts): readonly Fact[] {
    return this.all.filter((fact) => (before.#textOf(fact) ?? '') !== fact.text)
  }

  pinnedIssuer(): string | null {
    return this.#textOf({ hash: 'issuers', field: PINNED })
  }

  recall(name: string): Remembered | null {
    const text = this.#textOf({ hash: 'names', field: name })
    return text === null ? null : parseRemembered(name, text)
  }

  floorOf(issuer: string): Floor | null {
    const text = this.#textOf({ hash: 'issuers', field: floorField(issuer) })
    return text === null ? null : parseFloor(text)
  }

  after({ pin, remember }: Decision): Facts {
    return new Facts([
      ...this.all,
      ...(pin === null ? [] : [{ hash: 'issuers', field: PINNED, text: pin } as const]),
      ...remember.map(
        ({ name, remembered }) => ({ hash: 'names', field: name, text: rememberedText(remembered) }) as const,
      ),
    ])
  }

  #textOf(field: Field): string | null {
    const text = this.#byField.get(keyOf(field))?.text ?? ''
    return text === '' ? null : text
  }
}

function keyOf({ hash, field }: Field): string {
  return `${hash} ${field}`
}
