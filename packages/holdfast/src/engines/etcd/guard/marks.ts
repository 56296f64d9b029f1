/** The marks of some names as one read has found them, and what a decision makes of them. */
import { limits } from '../../../base/defaults.ts'
import { checkText, escapeName } from '../../../base/names.ts'
import type { Decision, GuardKnowledge } from '../../../guards/checkpoint.ts'
import { parseRemembered, rememberedText } from '../../../guards/remembered-text.ts'
import type { Remembered } from '../../../guards/rule.ts'
import { get, type KeyValue, type Operation } from '../client/index.ts'

export class GuardKeys {
  /** The issuer of the first fence ever accepted. */
  readonly issuer: string
  readonly #marks: string

  constructor(prefix = 'holdfast/guards/1/', guard: string) {
    const start = checkText('prefix', prefix, limits.keyBytes) + escapeName(guard)
    this.issuer = `${start}/issuer`
    this.#marks = `${start}/marks/`
  }

  mark(name: string): string {
    return this.#marks + name
  }
}

interface Kept {
  /** Null if there is no such key. */
  readonly text: string | null
  /** Of its last write; 0 if there is none. */
  readonly revision: number
}

const nothing: Kept = { text: null, revision: 0 }

export class Marks implements GuardKnowledge {
  readonly #keys: GuardKeys
  readonly #kept: ReadonlyMap<string, Kept>

  constructor(keys: GuardKeys, names: readonly string[], kept?: ReadonlyMap<string, Kept>) {
    this.#keys = keys
    const all = [keys.issuer, ...names.map((name) => keys.mark(name))]
    this.#kept = kept ?? new Map(names.length === 0 ? [] : all.map((key) => [key, nothing]))
  }

  get reads(): readonly Operation[] {
    return [...this.#kept.keys()].map((key) => get(key))
  }

  with(found: readonly KeyValue[]): Marks {
    const kept = new Map(this.#kept)
    for (const { key, value, mod_revision } of found) kept.set(key, { text: value, revision: mod_revision })
    return new Marks(this.#keys, [], kept)
  }

  after({ pin, remember }: Decision): Marks {
    const kept = new Map(this.#kept)
    const change = (key: string, text: string) => kept.set(key, { ...(kept.get(key) ?? nothing), text })
    if (pin !== null) change(this.#keys.issuer, pin)
    for (const { name, remembered } of remember) change(this.#keys.mark(name), rememberedText(remembered))
    return new Marks(this.#keys, [], kept)
  }

  /** Conditions and writes that lead from `before` to here. */
  changesSince(before: Marks) {
    const kept = [...this.#kept].map(([key, { text, revision }]) => ({ key, text: text ?? '', revision }))
    return {
      // An issuer that is settled never changes.
      compares: kept.filter(({ key, revision }) => key !== this.#keys.issuer || revision === 0),
      puts: kept
        .filter(({ key, text }) => text !== (before.#kept.get(key)?.text ?? ''))
        .map(({ key, text }) => ({ key, value: text })),
    }
  }

  isSameAs(other: Marks): boolean {
    return [...this.#kept].every(([key, { revision }]) => other.#kept.get(key)?.revision === revision)
  }

  pinnedIssuer(): string | null {
    return this.#kept.get(this.#keys.issuer)?.text ?? null
  }

  recall(name: string): Remembered | null {
    const text = this.#kept.get(this.#keys.mark(name))?.text ?? null
    return text === null ? null : parseRemembered(name, text)
  }

  floorOf(): null {
    return null
  }
}
