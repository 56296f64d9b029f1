/**
 * Writes a history while it happens: gives every event its place and its time. A process that may be killed passes a
 * `write` that has the line out of its hands when it returns (`appendFileSync`, or a pipe to the observer).
 */
import { assemble } from './assemble.ts'
import type { About, History, HistoryEvent, InvokeEvent, ReturnEvent } from './history.ts'
import { formatLine } from './lines.ts'

/** Each kind of event, without its place. */
type Unstamped<E> = E extends unknown ? Omit<E, 'seq' | 'at'> : never
export type NewEvent = Unstamped<Exclude<HistoryEvent, InvokeEvent | ReturnEvent>>
export type NewInvocation = Omit<InvokeEvent, 'kind' | 'seq' | 'at' | 'id'> & { readonly id?: string }
export type Answer = Omit<ReturnEvent, 'kind' | 'seq' | 'at' | 'id' | 'outcome'>

export interface Invoked {
  readonly id: string
  ok(answer?: Answer): void
  fail(answer?: Answer): void
  unknown(answer?: Answer): void
}

export interface RecorderOptions {
  /** Milliseconds on the observer's clock, which all processes of the run share. */
  readonly now: () => number
  /** Takes each line as it is written, with its end. */
  readonly write?: (line: string) => void
  /** Goes before the ids that the recorder makes up, so that those of several processes differ. */
  readonly prefix?: string
}

export class Recorder {
  readonly about: About
  readonly events: HistoryEvent[] = []
  readonly #options: RecorderOptions
  #seq = 0
  #at = -Infinity

  constructor(about: Omit<About, 'kind' | 'version'>, options: RecorderOptions) {
    this.about = { kind: 'about', version: 1, ...about }
    this.#options = options
    options.write?.(`${formatLine(this.about)}\n`)
  }

  /** Call it before the operation is sent. */
  invoke(operation: NewInvocation): Invoked {
    const { id = `${this.#options.prefix ?? ''}${this.#seq + 1}`, ...fields } = operation
    this.#add({ kind: 'invoke', ...this.#stamp(), id, ...fields })
    const answer =
      (outcome: ReturnEvent['outcome']) =>
      (given: Answer = {}) =>
        this.#add({ kind: 'return', ...this.#stamp(), id, outcome, ...given })
    return { id, ok: answer('ok'), fail: answer('fail'), unknown: answer('unknown') }
  }

  add(event: NewEvent): void {
    this.#add({ ...event, ...this.#stamp() } as HistoryEvent)
  }

  history(): History {
    return assemble(this.about, this.events)
  }

  #stamp(): { seq: number; at: number } {
    // A clock that is read in several threads may seem to go back by a hair; the order of the events does not.
    this.#at = Math.max(this.#at, this.#options.now())
    this.#seq++
    return { seq: this.#seq, at: this.#at }
  }

  #add(event: HistoryEvent): void {
    this.events.push(event)
    this.#options.write?.(`${formatLine(event)}\n`)
  }
}
