/** The calls and returns of the acts that are not linearized yet, in order. */
import { Chain, head } from './chain.ts'

export class Entries {
  readonly #chain: Chain
  /** The act of each node; its complement (`~act`) for a return. */
  readonly #acts: Int32Array
  readonly #calls: Int32Array
  readonly #returns: Int32Array

  /** The acts in the order of their invocation. Where a call and a return have the same place, the call goes first. */
  constructor(acts: readonly { readonly invoked: number; readonly returned: number }[]) {
    this.#chain = new Chain(2 * acts.length)
    this.#acts = new Int32Array(2 * acts.length + 1)
    this.#calls = new Int32Array(acts.length)
    this.#returns = new Int32Array(acts.length)

    const byReturn = acts.map(({ returned }, act) => ({ returned, act }))
    byReturn.sort((one, other) => one.returned - other.returned)
    let node = 1
    let call = 0
    for (const { act, returned } of byReturn) {
      for (let next = acts[call]; next !== undefined && next.invoked <= returned; next = acts[call]) {
        this.#calls[call] = node
        this.#acts[node++] = call++
      }
      this.#returns[act] = node
      this.#acts[node++] = ~act
    }
  }

  /** The first entry, which is a call, or `head` if there are none. */
  first(): number {
    return this.#chain.next(head)
  }

  /** The entry after the call of this act. */
  afterCall(act: number): number {
    return this.#chain.next(this.#calls[act] ?? head)
  }

  /** The act whose call this entry is, or the complement of the act whose return it is. */
  act(node: number): number {
    return this.#acts[node] ?? 0
  }

  firstToReturn(): number {
    let node = this.first()
    while (this.act(node) >= 0) node = this.#chain.next(node)
    return ~this.act(node)
  }

  lift(act: number): void {
    this.#chain.unlink(this.#calls[act] ?? head)
    this.#chain.unlink(this.#returns[act] ?? head)
  }

  unlift(act: number): void {
    this.#chain.relink(this.#returns[act] ?? head)
    this.#chain.relink(this.#calls[act] ?? head)
  }
}
