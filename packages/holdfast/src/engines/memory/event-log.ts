/**
 * The last events, numbered from 1, in a ring. A watcher reads them at its own pace, and learns when it was too slow. Nothing
 * is kept per watcher. Before the first watcher nothing is kept at all: no cursor leads there.
 */
import { publicIdOf } from '../../base/ids.ts'
import { KEPT_EVENTS, type LogPage } from '../../kit/follow-log.ts'
import { Changes, type ToldEvent, toldEvent } from '../../kit/watching.ts'
import type { WatchEventKind } from '../../spi.ts'
import type { MemoryClaim } from './state.ts'

const EVENTS_AT_ONCE = 256

interface LoggedEvent {
  readonly number: number
  readonly namespace: string
  readonly event: ToldEvent
}

export class EventLog extends Changes {
  readonly #ring: LoggedEvent[] = []
  #last = 0
  #isWatched = false

  /** From now on there may be cursors. */
  watch(): void {
    this.#isWatched = true
  }

  /** The number of the latest event; 0 before the first. */
  get last(): number {
    return this.#last
  }

  append(kind: WatchEventKind, claim: MemoryClaim): void {
    if (!this.#isWatched) return
    const { name, attempt, session, owner, token } = claim
    const number = ++this.#last
    const event = toldEvent({ kind, name, id: publicIdOf(attempt), holder: session.holder, owner, token })
    this.#ring[number % KEPT_EVENTS] = { number, namespace: session.namespace, event }
    this.changed()
  }

  /** Undefined if it has been overwritten, or has not happened yet. */
  at(number: number): LoggedEvent | undefined {
    const found = this.#ring[number % KEPT_EVENTS]
    return found?.number === number ? found : undefined
  }

  /** Null: some of what came after this number is not here any more, or the number is yet to come. */
  after(from: number, namespace: string): LogPage<number> | null {
    if (from > this.#last || this.#last - from > KEPT_EVENTS) return null
    const next = Math.min(this.#last, from + EVENTS_AT_ONCE)
    const events: { readonly event: ToldEvent | null; readonly at: number }[] = []
    for (let at = from + 1; at <= next; at++) {
      const logged = this.at(at)
      events.push({ event: logged?.namespace === namespace ? logged.event : null, at })
    }
    return { events, next, isLast: next === this.#last }
  }
}
