/**
 * Wing and Gong's search for an order in which the acts can have taken effect one at a time, with Lowe's memory of the
 * configurations (what was linearized, and the state it led to) that were met before.
 *
 * Acts that certainly took effect must all be placed, each between its invocation and its return. Acts that nobody
 * knows about are tried only where nothing else fits, so that most of them cost nothing.
 */
import { Bits } from './bits.ts'
import { Chain, head } from './chain.ts'
import { Entries } from './entries.ts'
import type { Act, Model } from './model.ts'

export interface Limits {
  /** On the clock of `performance.now`. */
  readonly deadline: number
  readonly maxConfigurations: number
}

export type SearchResult<State, Call> =
  | { readonly kind: 'found'; readonly order: readonly Act<Call>[]; readonly configurations: number }
  /** The longest order that was found, the state it leads to, and what of the rest had to come next. */
  | {
      readonly kind: 'impossible'
      readonly prefix: readonly Act<Call>[]
      readonly state: State
      readonly stuck: readonly Act<Call>[]
      readonly configurations: number
    }
  | { readonly kind: 'gave-up'; readonly why: string; readonly configurations: number }

export function search<State, Call>(
  model: Model<State, Call>,
  acts: readonly Act<Call>[],
  limits: Limits,
): SearchResult<State, Call> {
  return new Search(model, acts, limits).run()
}

/** An act that was placed: the index of a certain one, or the complement of the index of an optional one. */
type Placed = number

class Search<State, Call> {
  readonly #model: Model<State, Call>
  readonly #limits: Limits
  readonly #certain: readonly Act<Call>[]
  readonly #optional: readonly Act<Call>[]
  readonly #entries: Entries
  /** Optional acts by node, which is their index + 1: those that are taken whenever they can be, and the others. */
  readonly #eager: Chain
  readonly #reluctant: Chain
  readonly #certainDone: Bits
  readonly #optionalDone: Bits
  readonly #met = new Set<string>()
  readonly #scratch: number[] = []
  #tries = 0
  #nextLook = 0

  /** The order so far, and the state before each. */
  readonly #placed: Placed[] = []
  readonly #states: State[] = []
  #state: State
  #certainLeft: number

  /** The order that had the fewest certain acts left, and how many those were. */
  readonly #best: Placed[] = []
  #bestLeft = Infinity
  /** Up to here, the order so far and the best one are the same. */
  #sameAsBest = 0

  constructor(model: Model<State, Call>, acts: readonly Act<Call>[], limits: Limits) {
    const inOrder = acts.toSorted((one, other) => one.invoked - other.invoked)
    this.#model = model
    this.#limits = limits
    this.#certain = inOrder.filter(({ certain }) => certain)
    this.#optional = inOrder.filter(({ certain }) => !certain)
    this.#entries = new Entries(this.#certain)
    this.#eager = new Chain(this.#optional.length)
    this.#reluctant = new Chain(this.#optional.length)
    for (const [index, act] of this.#optional.entries())
      (act.eager ? this.#reluctant : this.#eager).unlink(index + 1)
    this.#certainDone = new Bits(this.#certain.length)
    this.#optionalDone = new Bits(this.#optional.length)
    this.#state = model.initial
    this.#certainLeft = this.#certain.length
  }

  run(): SearchResult<State, Call> {
    let undone: Placed | null = null
    while (this.#certainLeft > 0) {
      const why = this.#pastLimits()
      if (why !== null) return { kind: 'gave-up', why, configurations: this.#met.size }
      if (this.#advance(undone)) undone = null
      else {
        undone = this.#undo()
        if (undone === null) return this.#impossible()
      }
    }
    return {
      kind: 'found',
      order: this.#placed.map((each) => this.#act(each)),
      configurations: this.#met.size,
    }
  }

  /** Places the first act that can come next, of those after `undone` if that has just been tried in vain. */
  #advance(undone: Placed | null): boolean {
    if (undone === null) {
      const eager = this.#nextEager()
      // Nothing else is worth trying before it.
      if (eager !== null) return this.#place(~eager)
    }
    if (undone === null || undone >= 0) {
      let entry = undone === null ? this.#entries.first() : this.#entries.afterCall(undone)
      // Operations that are invoked after the first return cannot come before that return.
      for (let act = this.#entries.act(entry); act >= 0; act = this.#entries.act(entry)) {
        if (this.#place(act)) return true
        entry = this.#entries.afterCall(act)
      }
    }
    let node = this.#reluctant.next(undone !== null && undone < 0 ? ~undone + 1 : head)
    if (node === head) return false
    const limit = this.#firstReturn()
    for (; node !== head && this.#act(~(node - 1)).invoked <= limit; node = this.#reluctant.next(node))
      if (this.#place(~(node - 1))) return true
    return false
  }

  #nextEager(): number | null {
    let node = this.#eager.next(head)
    if (node === head) return null
    const limit = this.#firstReturn()
    for (; node !== head; node = this.#eager.next(node)) {
      const { invoked, call } = this.#act(~(node - 1))
      if (invoked > limit) return null
      if (this.#model.step(this.#state, call) !== null) return node - 1
    }
    return null
  }

  #firstReturn(): number {
    return this.#certain[this.#entries.firstToReturn()]?.returned ?? Infinity
  }

  /** False if it cannot take effect here, or if what it leads to has been met before, and so leads nowhere. */
  #place(placed: Placed): boolean {
    this.#tries++
    const state = this.#model.step(this.#state, this.#act(placed).call)
    if (state === null) return false
    this.#mark(placed)
    const key = this.#key(state)
    if (this.#met.has(key)) {
      this.#unmark(placed)
      return false
    }
    this.#met.add(key)
    this.#lift(placed)
    this.#placed.push(placed)
    this.#states.push(this.#state)
    this.#state = state
    return true
  }

  /** Takes back the last act that had alternatives; null if there is none. */
  #undo(): Placed | null {
    this.#keepBest()
    for (;;) {
      const placed = this.#placed.pop()
      const state = this.#states.pop()
      if (placed === undefined) return null
      this.#state = state as State
      this.#sameAsBest = Math.min(this.#sameAsBest, this.#placed.length)
      this.#unmark(placed)
      this.#unlift(placed)
      if (!this.#act(placed).eager) return placed
    }
  }

  #act(placed: Placed): Act<Call> {
    return (placed >= 0 ? this.#certain[placed] : this.#optional[~placed]) as Act<Call>
  }

  #mark(placed: Placed): void {
    if (placed >= 0) this.#certainDone.add(placed)
    else this.#optionalDone.add(~placed)
  }

  #unmark(placed: Placed): void {
    if (placed >= 0) this.#certainDone.delete(placed)
    else this.#optionalDone.delete(~placed)
  }

  #lift(placed: Placed): void {
    if (placed >= 0) {
      this.#entries.lift(placed)
      this.#certainLeft--
    } else (this.#act(placed).eager ? this.#eager : this.#reluctant).unlink(~placed + 1)
  }

  #unlift(placed: Placed): void {
    if (placed >= 0) {
      this.#entries.unlift(placed)
      this.#certainLeft++
    } else (this.#act(placed).eager ? this.#eager : this.#reluctant).relink(~placed + 1)
  }

  /** The exact configuration, not a hash of it: two that are taken for one could hide the only way. */
  #key(state: State): string {
    const out = this.#scratch
    out.length = this.#optionalDone.write(out, this.#certainDone.write(out, 0))
    let key = ''
    for (let start = 0; start < out.length; start += 4096)
      key += String.fromCharCode(...(out.length <= 4096 ? out : out.slice(start, start + 4096)))
    return key + this.#model.key(state)
  }

  #pastLimits(): string | null {
    const { deadline, maxConfigurations } = this.#limits
    if (this.#met.size > maxConfigurations) return `more than ${maxConfigurations} configurations`
    // Reading the clock costs as much as some steps.
    if (this.#tries >= this.#nextLook) {
      this.#nextLook = this.#tries + 1_000
      if (performance.now() > deadline) return 'out of time'
    }
    return null
  }

  #keepBest(): void {
    if (this.#certainLeft >= this.#bestLeft) return
    this.#bestLeft = this.#certainLeft
    this.#best.length = this.#sameAsBest
    for (let index = this.#sameAsBest; index < this.#placed.length; index++)
      this.#best.push(this.#placed[index] as Placed)
    this.#sameAsBest = this.#placed.length
  }

  #impossible(): SearchResult<State, Call> {
    const done = new Set(this.#best)
    const prefix = this.#best.map((each) => this.#act(each))
    const left = this.#certain.filter((_act, index) => !done.has(index))
    const firstReturn = left.reduce((least, { returned }) => Math.min(least, returned), Infinity)
    return {
      kind: 'impossible',
      prefix,
      state: prefix.reduce((state, { call }) => this.#model.step(state, call) as State, this.#model.initial),
      stuck: left.filter(({ invoked }) => invoked <= firstReturn),
      configurations: this.#met.size,
    }
  }
}
