/**
 * The last events, numbered from 1, in a ring: who watches reads them at its own pace and learns when it was too
 * slow. Nothing is kept per watcher.
 */
import type { WatchEventKind } from '../../spi.ts'
import type { Claim } from './state.ts'

export interface LoggedEvent {
  readonly sequence: number
  readonly kind: WatchEventKind
  readonly namespace: string
  readonly name: string
  readonly id: string
  readonly holder: string
  readonly owner: string | undefined
  readonly token: bigint | null
}

const KEPT_EVENTS = 10_000

export class EventLog {
  readonly #ring: LoggedEvent[] = []
  readonly #wakeUps = new Set<() => void>()
  #last = 0

  /** The number of the latest event; 0 before the first. */
  get last(): number {
    return this.#last
  }

  append(kind: WatchEventKind, claim: Claim): void {
    const { record, publicId, session, owner, token } = claim
    const { namespace, name } = record
    const sequence = ++this.#last
    this.#ring[sequence % KEPT_EVENTS] = {
      sequence,
      kind,
      namespace,
      name,
      id: publicId,
      holder: session.holder,
      owner,
      token,
    }
    if (this.#wakeUps.size === 0) return
    const wakeUps = [...this.#wakeUps]
    this.#wakeUps.clear()
    for (const wakeUp of wakeUps) wakeUp()
  }

  /** Null if it has been overwritten, or has not happened yet. */
  at(sequence: number): LoggedEvent | null {
    const found = this.#ring[sequence % KEPT_EVENTS]
    return found?.sequence === sequence ? found : null
  }

  /** Whether everything after event `sequence` is still here. */
  reachesBackTo(sequence: number): boolean {
    return sequence <= this.#last && this.#last - sequence <= KEPT_EVENTS
  }

  /** Calls `wakeUp` once, at the next event; the returned function takes it back. */
  onNext(wakeUp: () => void): () => void {
    this.#wakeUps.add(wakeUp)
    return () => this.#wakeUps.delete(wakeUp)
  }
}
