/** Which name was asked for while which was held. A cycle in it is an order that can deadlock. */
import type { LockOrder } from '../../base/events.ts'
import { TransientMap } from '../../base/transient-map.ts'

export class OrderGraph {
  readonly #max: number
  /** By the name that was held, then by the one that was asked for; the oldest first. */
  readonly #orders = new Map<string, Map<string, LockOrder>>()
  /** Pairs of names in the order in which they came, so that the oldest can go. */
  readonly #all = new TransientMap<LockOrder, true>()

  constructor(max: number) {
    this.#max = max
  }

  has(held: string, asked: string): boolean {
    return this.#orders.get(held)?.has(asked) ?? false
  }

  /** The cycle that this order closes, itself last; null if there is none. */
  add(order: LockOrder): readonly LockOrder[] | null {
    const back = this.#path(order.asked, order.held)
    const from = this.#orders.get(order.held)
    if (from === undefined) this.#orders.set(order.held, new Map([[order.asked, order]]))
    else from.set(order.asked, order)
    this.#all.set(order, true)
    if (this.#all.size > this.#max) this.#forgetOldest()
    return back === null ? null : [...back, order]
  }

  /** The shortest way from one name to another. */
  #path(from: string, to: string): readonly LockOrder[] | null {
    const cameBy = new Map<string, LockOrder>()
    const queue = [from]
    for (const name of queue) {
      for (const [asked, order] of this.#orders.get(name) ?? []) {
        if (asked === from || cameBy.has(asked)) continue
        cameBy.set(asked, order)
        if (asked === to) return wayTo(to, from, cameBy)
        queue.push(asked)
      }
    }
    return null
  }

  #forgetOldest(): void {
    const [oldest] = this.#all.keys()
    if (oldest === undefined) return
    this.#all.delete(oldest)
    const from = this.#orders.get(oldest.held)
    from?.delete(oldest.asked)
    if (from?.size === 0) this.#orders.delete(oldest.held)
  }
}

function wayTo(to: string, from: string, cameBy: ReadonlyMap<string, LockOrder>): readonly LockOrder[] {
  const way: LockOrder[] = []
  for (let name = to; name !== from; ) {
    const order = cameBy.get(name) as LockOrder
    way.unshift(order)
    name = order.held
  }
  return way
}
