/**
 * The reference model: what every other engine is compared with, as synchronous steps on one process's memory. A step
 * sees no dead session, changes what the rules say (`kit/rules.ts`), and hands over what became free before it returns.
 * Nothing comes in between, so there is nothing that could go wrong between two changes. What is due is done before every
 * step, and by a timer while someone waits or watches.
 */
import { type Clock, systemClock, type Timer } from '../../base/clock.ts'
import { type Random, systemRandom } from '../../base/ids.ts'
import { pageOf } from '../../kit/backend-kit.ts'
import { expire, promote } from '../../kit/rules.ts'
import type * as spi from '../../spi.ts'
import { EventLog } from './event-log.ts'
import { NameTable } from './name-table.ts'
import { describeName } from './state.ts'

const all: spi.PageRequest = { limit: Number.POSITIVE_INFINITY }

export interface MemoryEngineOptions {
  /** Judges expiry; it may differ from the clocks of the engine's clients. */
  readonly clock?: Clock
  readonly random?: Random
}

/** Of its methods users see few: `MemoryEngine` in `index.ts`. */
export class MemoryEngine implements Disposable {
  /** Tells this engine from every other, also after a restart of the process. */
  readonly id: string
  readonly clock: Clock
  readonly log = new EventLog()
  readonly #table = new NameTable(this.log)
  #watchers = 0
  #timer: { readonly handle: Timer; readonly dueMs: number } | undefined

  constructor(options: MemoryEngineOptions = {}) {
    this.clock = options.clock ?? systemClock
    this.id = (options.random ?? systemRandom).id()
  }

  step<T>(work: (table: NameTable) => T): T {
    const table = this.#table
    table.nowMs = this.clock.monotonicMs()
    // A session may leave a lock-delay behind that is over by now, too.
    expire(table)
    try {
      return work(table)
    } finally {
      this.#armTimer()
    }
  }

  /** Everything that the engine keeps; all zero when everything has been given back. */
  stats(): { sessions: number; names: number; waiters: number; deadlines: number } {
    return this.step(({ size }) => size)
  }

  inspect(namespace: string, name: string, holdersOnly = false): spi.NameState | null {
    return this.step((table) => {
      const record = table.find({ namespace, name })
      return record === undefined ? null : describeName(record, table.nowMs, holdersOnly)
    })
  }

  list(namespace: string, prefix: string, page: spi.PageRequest = all): spi.Page<spi.NameState> {
    return this.step((table) => {
      const matching = [...table.names(namespace)].filter(({ name }) => name.startsWith(prefix))
      const { items, next } = pageOf(matching, page, ({ name }) => name)
      return { items: items.map((record) => describeName(record, table.nowMs)), next }
    })
  }

  /**
   * A fault, for tests and simulations: the holders and the data of a name vanish unnoticed, as they
   * do on an engine whose operator deletes keys (T34, deleted keys). No client is told why.
   */
  deleteName(namespace: string, name: string): void {
    this.step((table) => {
      table.deleteHolders({ namespace, name })
      table.dropData({ namespace, name })
      promote(table, { namespace, name })
    })
  }

  /** While there is a watcher, expiries are noticed when they happen; call the result to stop. */
  addWatcher(): () => void {
    this.step(() => this.#watchers++)
    return () => void this.#watchers--
  }

  /** Stops the engine's timer. What is waiting stays where it is. */
  [Symbol.dispose](): void {
    this.#timer?.handle.cancel()
    this.#timer = undefined
  }

  #armTimer(): void {
    const table = this.#table
    const needed = table.waiting > 0 || this.#watchers > 0
    const dueMs = needed ? table.dueMs() : Number.POSITIVE_INFINITY
    // A timer that fires too early does no harm and arms the next, so keep-alives need not move it.
    if (this.#timer !== undefined && this.#timer.dueMs <= dueMs && needed) return
    this[Symbol.dispose]()
    if (dueMs === Number.POSITIVE_INFINITY) return
    const handle = this.clock.setTimer(dueMs - table.nowMs, () => {
      this.#timer = undefined
      this.step(() => {})
    })
    this.#timer = { handle, dueMs }
  }
}
