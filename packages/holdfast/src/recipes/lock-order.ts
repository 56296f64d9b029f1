/**
 * Watches the order in which the tasks of a process take locks, opt-in. Two tasks that take two names in opposite orders wait for
 * each other some day, until their `waitMs` is over. Both orders show up long before that day: a `lock-order` event tells them, once.
 *
 * A task is the body of a `withLease` or `withLeases` (AsyncLocalStorage) with every acquire in it, or else all acquires with the same
 * `owner`. A plain `acquire` outside of a body and without an owner belongs to no known task, and is not watched.
 *
 * Failures, and why each is harmless or told:
 *   a lease is lost, or dropped without a release: it is asked for its state, and known by a weak reference.
 *   an unbounded number of names (`order/17`): the graph keeps the latest `maxOrders`, and as many reports.
 *   an unbounded number of owners: those that hold nothing any more are swept when their number has doubled.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { callSite } from '../base/call-site.ts'
import { emit, hasListeners, type LockOrder } from '../base/events.ts'
import { readBody } from '../base/lease-body.ts'
import { canonicalOrder } from '../base/lease-set.ts'
import { checkInteger, checkKnownOptions } from '../base/options.ts'
import { overriding } from '../base/overriding.ts'
import { TransientMap } from '../base/transient-map.ts'
import type {
  AcquireOptions,
  HoldOptions,
  Lease,
  LeaseBase,
  LeaseSet,
  Locker,
  WaitOptions,
} from '../base/types.ts'
import { OrderGraph } from './lock-order/graph.ts'
import { checkNeeds } from './needs.ts'

export { type Deadlock, type DeadlockedTask, findDeadlocks } from './lock-order/deadlocks.ts'

export interface LockOrderOptions {
  /** How many pairs of names are remembered, the latest ones. 1,000, the default: the 1,001st pair replaces the oldest. */
  readonly maxOrders?: number
}

const MAX_ORDERS = 1_000
const FEWEST_SWEPT = 64

type Body<T, L = Lease> = (lease: L) => Promise<T> | T
type Site = () => string

/** The same locker. While a `lock-order` event has listeners, it watches what its tasks hold when they ask for more. */
export function watchLockOrder<L extends Locker>(locker: L, options: LockOrderOptions = {}): L {
  checkNeeds('The watch over lock order', locker, [])
  checkKnownOptions('options', options, ['maxOrders'])
  const { maxOrders = MAX_ORDERS } = options
  const orders = new Orders(locker, checkInteger('maxOrders', maxOrders, { min: 1, max: 100_000 }))
  const watched: Partial<Locker> = {
    acquire: (name, options) =>
      orders.asking([name], options, siteOf('acquire'), () => locker.acquire(name, options)),
    acquirePermits: (name, options) =>
      orders.asking([name], options, siteOf('acquirePermits'), () => locker.acquirePermits(name, options)),
    // These calls do not wait, so they close no cycle; what they get is held all the same.
    tryAcquire: (name, options) =>
      orders.asking([], options, siteOf('tryAcquire'), () => locker.tryAcquire(name, options)),
    tryAcquirePermits: (name, options) =>
      orders.asking([], options, siteOf('tryAcquirePermits'), () => locker.tryAcquirePermits(name, options)),
    acquireAll: async (names, options) =>
      orders.asking(canonicalOrder(names), options, siteOf('acquireAll'), () =>
        locker.acquireAll(names, options),
      ),
    withLeases: async <T>(
      names: readonly string[],
      optionsOrBody: AcquireOptions | Body<T, LeaseSet>,
      maybeBody?: Body<T, LeaseSet>,
    ) => {
      const given = readBody(optionsOrBody, maybeBody)
      return orders.scoped(canonicalOrder(names), given, siteOf('withLeases'), (body) =>
        locker.withLeases(names, given.options, body),
      )
    },
    withLease: async <T>(name: string, optionsOrBody: AcquireOptions | Body<T>, maybeBody?: Body<T>) => {
      const given = readBody(optionsOrBody, maybeBody)
      return orders.scoped([name], given, siteOf('withLease'), (body) =>
        locker.withLease(name, given.options, body),
      )
    },
  }
  // Without a listener nothing is noted, so the stack is not captured.
  const siteOf = (method: keyof typeof watched): Site =>
    hasListeners('lock-order') ? callSite(watched[method] as (...args: never[]) => unknown) : () => 'unknown'
  return overriding<Locker>(locker, watched) as L
}

/** A task, and the leases that it holds. */
class Task {
  readonly #held = new Set<{ readonly lease: WeakRef<LeaseBase>; readonly site: Site }>()
  readonly #outer: Task | undefined

  /** An inner body also holds what its outer body holds, but not what other inner bodies hold. */
  constructor(outer?: Task) {
    this.#outer = outer
  }

  hold(lease: LeaseBase, site: Site): void {
    this.#held.add({ lease: new WeakRef(lease), site })
  }

  *held(): Generator<{ readonly name: string; readonly site: Site }> {
    if (this.#outer !== undefined) yield* this.#outer.held()
    for (const each of this.#held) {
      const { state, name } = each.lease.deref() ?? { state: 'lost', name: '' }
      if (state === 'held' || state === 'jeopardy') yield { name, site: each.site }
      else this.#held.delete(each)
    }
  }
}

class Orders {
  readonly #locker: Locker
  readonly #graph: OrderGraph
  readonly #max: number
  readonly #scopes = new AsyncLocalStorage<Task>()
  readonly #owners = new Map<string, Task>()
  readonly #reported = new TransientMap<string, true>()
  #sweepAt = FEWEST_SWEPT

  constructor(locker: Locker, max: number) {
    this.#locker = locker
    this.#graph = new OrderGraph(max)
    this.#max = max
  }

  /** `names` in the order in which they are taken; none if the call does not wait. */
  async asking<T>(
    names: readonly string[],
    options: (HoldOptions & WaitOptions) | undefined,
    site: Site,
    ask: () => Promise<T>,
  ): Promise<T> {
    if (!hasListeners('lock-order')) return ask()
    const task = this.#note(names, options, site)
    const got = await ask()
    for (const lease of leasesOf(got)) task.hold(lease, site)
    return got
  }

  /** Runs the body as a task, or as an inner one. `L` is a lease, or a set of leases. */
  async scoped<T, L>(
    names: readonly string[],
    { options, body }: { readonly options: AcquireOptions; readonly body: Body<T, L> },
    site: Site,
    run: (body: Body<T, L>) => Promise<T>,
  ): Promise<T> {
    if (!hasListeners('lock-order')) return run(body)
    const asking = this.#note(names, options, site)
    const task = this.#scopes.getStore() === undefined ? asking : new Task(asking)
    return run((held) => {
      for (const lease of leasesOf(held)) task.hold(lease, site)
      return this.#scopes.run(task, () => body(held))
    })
  }

  #taskOf(options: HoldOptions | undefined): Task {
    const scope = this.#scopes.getStore()
    if (scope !== undefined) return scope
    const owner = options?.owner
    const known = owner === undefined ? undefined : this.#owners.get(owner)
    if (owner === undefined || known !== undefined) return known ?? new Task()
    if (this.#owners.size >= this.#sweepAt) this.#sweep()
    const task = new Task()
    this.#owners.set(owner, task)
    return task
  }

  #sweep(): void {
    for (const [owner, task] of this.#owners) if (task.held().next().done) this.#owners.delete(owner)
    this.#sweepAt = Math.max(FEWEST_SWEPT, this.#owners.size * 2)
  }

  #note(names: readonly string[], options: (HoldOptions & WaitOptions) | undefined, site: Site): Task {
    const task = this.#taskOf(options)
    const held = [...task.held()]
    for (const [index, asked] of options?.waitMs === 0 ? [] : names.entries()) {
      // A name that is entered again, or waits for itself, is no order.
      if (held.some(({ name }) => name === asked)) continue
      for (const { name, site: heldSite } of held) this.#order(name, heldSite, asked, site)
      // Earlier names of an `acquireAll` are held while it asks for the next one.
      const before = names[index - 1]
      if (before !== undefined) this.#order(before, site, asked, site)
    }
    return task
  }

  #order(held: string, heldSite: Site, asked: string, site: Site): void {
    if (this.#graph.has(held, asked)) return
    const cycle = this.#graph.add({ held, heldAt: heldSite(), asked, askedAt: site() })
    if (cycle !== null) this.#report(cycle)
  }

  #report(orders: readonly LockOrder[]): void {
    // Names have no control characters.
    const key = orders
      .map(({ held }) => held)
      .sort()
      .join('\n')
    if (this.#reported.has(key)) return
    this.#reported.set(key, true)
    const [oldest] = this.#reported.keys()
    if (this.#reported.size > this.#max && oldest !== undefined) this.#reported.delete(oldest)
    const { info, holder } = this.#locker
    emit('lock-order', { backend: info.name, namespace: info.namespace, holder, orders })
  }
}

function leasesOf(got: unknown): readonly LeaseBase[] {
  if (got === null) return []
  return 'leases' in (got as object) ? (got as { leases: LeaseBase[] }).leases : [got as LeaseBase]
}
