/**
 * Virtual time: a queue of what happens when, in the order of (time, number). Between two events everything that
 * promises have set off is run to its end, so the order of events is the only order there is.
 */
interface Entry {
  readonly atMs: number
  readonly number: number
  /** Undefined once it has been cancelled. */
  fire: (() => void) | undefined
}

export interface Scheduled {
  cancel(): void
}

export class Scheduler {
  nowMs = 0
  /** How many events have happened. */
  events = 0
  readonly #heap: Entry[] = []
  #numbers = 0
  #stopped = false

  at(atMs: number, fire: () => void): Scheduled {
    const entry: Entry = { atMs: Math.max(atMs, this.nowMs), number: ++this.#numbers, fire }
    this.#push(entry)
    return {
      cancel: () => {
        entry.fire = undefined
      },
    }
  }

  after(delayMs: number, fire: () => void): Scheduled {
    return this.at(this.nowMs + delayMs, fire)
  }

  stop(): void {
    this.#stopped = true
  }

  /** Runs everything up to `untilMs`, or until `stop`. */
  run(untilMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      // Ticks come after all microtasks, and no turn of the real event loop is spent between two events.
      const afterMicrotasks = () => process.nextTick(step)
      const step = () => {
        const entry = this.#stopped ? undefined : this.#take(untilMs)
        if (entry === undefined) {
          if (!this.#stopped) this.nowMs = untilMs
          resolve()
          return
        }
        this.nowMs = entry.atMs
        this.events++
        try {
          entry.fire?.()
        } catch (error) {
          reject(error)
          return
        }
        queueMicrotask(afterMicrotasks)
      }
      process.nextTick(step)
    })
  }

  #take(untilMs: number): Entry | undefined {
    for (;;) {
      const first = this.#heap[0]
      if (first === undefined || first.atMs > untilMs) return undefined
      this.#pop()
      if (first.fire !== undefined) return first
    }
  }

  #push(entry: Entry): void {
    const heap = this.#heap
    let at = heap.length
    heap.push(entry)
    while (at > 0) {
      const up = (at - 1) >> 1
      const parent = heap[up] as Entry
      if (!isBefore(entry, parent)) break
      heap[at] = parent
      at = up
    }
    heap[at] = entry
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop()
    if (last === undefined || heap.length === 0) return
    let at = 0
    for (;;) {
      let down = 2 * at + 1
      if (down >= heap.length) break
      if (down + 1 < heap.length && isBefore(heap[down + 1] as Entry, heap[down] as Entry)) down++
      const child = heap[down] as Entry
      if (!isBefore(child, last)) break
      heap[at] = child
      at = down
    }
    heap[at] = last
  }
}

function isBefore(a: Entry, b: Entry): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.number < b.number)
}
