/**
 * The last events, numbered from 1, in a ring. A watcher reads them at its own pace, and learns when it was too slow. Nothing
 * is kept per watcher.
 */
import { KEPT_EVENTS } from '../../kit/follow-log.ts'
import { Changes, type ToldEvent, toldEvent } from '../../kit/watching.ts'
import type { WatchEventKind } from '../../spi.ts'
import type { Claim } from './state.ts'

interface LoggedEvent {
  readonly number: number
  readonly namespace: string
  readonly event: ToldEvent
}

export class EventLog extends Changes {
  readonly #ring: LoggedEvent[] = []
  #last = 0

  /** The number of the latest event; 0 before the first. */
  get last(): number {
    return this.#last
  }

  append(kind: WatchEventKind, claim: Claim): void {
    const { name, publicId, session, owner, token } = claim
    const number = ++this.#last
    const event = toldEvent({ kind, name, id: publicId, holder: session.holder, owner, token })
    this.#ring[number % KEPT_EVENTS] = { number, namespace: session.namespace, event }
    this.changed()
  }

  /** Undefined if it has been overwritten, or has not happened yet. */
  at(number: number): LoggedEvent | undefined {
    const found = this.#ring[number % KEPT_EVENTS]
    return found?.number === number ? found : undefined
  }

  /** The events after this number, at most so many; null if some of them are not here any more, or the number is yet to come. */
  after(number: number, atMost: number): readonly LoggedEvent[] | null {
    if (number > this.#last || this.#last - number > KEPT_EVENTS) return null
    const events: LoggedEvent[] = []
    for (let next = number + 1; next <= this.#last && events.length < atMost; next++) {
      const event = this.at(next)
      if (event !== undefined) events.push(event)
    }
    return events
  }
}
