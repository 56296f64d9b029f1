/** The last events that were read, so that one reading serves all watchers of a process. */
import { Changes } from '../../kit/watching.ts'
import type { Entry, Position } from './watch.ts'

const KEPT_EVENTS = 10_000
/** How many a watcher gets at a time. */
const EVENTS_AT_ONCE = 256

export class RecentEvents extends Changes {
  #logId = ''
  #entries: Entry[] = []
  /** How many were dropped before them. */
  #dropped = 0
  readonly #places = new Map<string, number>()
  #failure: unknown

  /** The position after the last of them; null before the first start. */
  get last(): Position | null {
    const last = this.#entries.at(-1)
    return last === undefined ? null : { logId: this.#logId, at: last.at }
  }

  /** From here on in this log. */
  start({ logId, at }: Position): void {
    this.clear()
    this.#logId = logId
    this.add([{ at, event: null }])
  }

  clear(): void {
    this.#logId = ''
    this.#entries = []
    this.#dropped = 0
    this.#places.clear()
    this.#failure = undefined
  }

  add(entries: readonly Entry[]): void {
    for (const entry of entries) {
      this.#places.set(entry.at, this.#dropped + this.#entries.length)
      this.#entries.push(entry)
    }
    if (this.#entries.length > 2 * KEPT_EVENTS) {
      const old = this.#entries.splice(0, this.#entries.length - KEPT_EVENTS)
      for (const { at } of old) this.#places.delete(at)
      this.#dropped += old.length
    }
    this.changed()
  }

  /** There will be no more: all watchers are told why. */
  fail(error: unknown): void {
    this.#failure = error
    this.changed()
  }

  /** What comes after; null if they do not reach back to it, or are of another log. */
  after({ logId, at }: Position): readonly Entry[] | null {
    if (this.#failure !== undefined) throw this.#failure
    const place = logId === this.#logId ? this.#places.get(at) : undefined
    if (place === undefined) return null
    const start = place - this.#dropped + 1
    return this.#entries.slice(start, start + EVENTS_AT_ONCE)
  }
}
