/**
 * Reads etcd's history of a range of keys. A cursor is a revision, and a number in it. A watch that is lost is opened again where
 * it was. What has been compacted is a gap.
 */
import type { Clock, Timer } from '../../../base/clock.ts'
import { defaults } from '../../../base/defaults.ts'
import type { Random } from '../../../base/ids.ts'
import type { Call } from '../../../spi.ts'
import type { EtcdClient } from './client.ts'
import { type Event, methods, type WatchResponse } from './messages.ts'
import type { Range } from './transactions.ts'
import type { Watches } from './watches.ts'

/** Characters of values. A reader that is so far behind reads the rest later, from where it is. */
const MAX_PENDING = 4 * 2 ** 20

/** `number`: how many events of the revision have been read. */
interface Position {
  readonly revision: number
  readonly number: number
}

/** A response without events, and the keys and numbers of an event. */
const EVENT_OVERHEAD = 200

const ALL = Number.MAX_SAFE_INTEGER

export type Change =
  /** `together`: all events of the same revision. */
  | {
      readonly kind: 'event'
      readonly event: Event
      readonly together: readonly Event[]
      readonly cursor: string
    }
  /** The history goes on after this revision. `restart`: a cursor that leads to a gap. */
  | { readonly kind: 'gap'; readonly revision: number; readonly cursor: string; readonly restart: string }

export interface HistoryOptions {
  readonly client: EtcdClient
  readonly watches: Watches
  readonly clock: Clock
  readonly random: Random
}

export class History {
  readonly #options: HistoryOptions
  readonly #range: Range
  readonly #origin: string
  #pending: WatchResponse[] = []
  #pendingSize = 0
  /** Events of a revision that came in pieces: its end has not come. */
  #begun: Event[] = []
  #stop: (() => void) | undefined
  #pause: Timer | undefined
  #wake: () => void = () => {}
  #failure: { readonly error: unknown } | undefined

  /** `origin`: tells cursors of another cluster, or of a time before a restore. */
  constructor(options: HistoryOptions, range: Range, origin: string) {
    this.#options = options
    this.#range = range
    this.#origin = origin
  }

  /** Without a cursor, from now on. */
  async *from(cursor: string | undefined, call: Call): AsyncGenerator<Change> {
    const start = await this.#now(call)
    let at = cursor === undefined ? start : this.#positionAt(cursor, start)
    for (;;) {
      // The revision of a position may have more events.
      const events = at === null ? null : await this.#next(at.number === ALL ? at.revision + 1 : at.revision)
      if (events === null || at === null) {
        at = await this.#now(call)
        const { revision } = at
        yield { kind: 'gap', revision, cursor: this.#cursorAt(at), restart: `${this.#origin}:gap` }
        continue
      }
      for (const [revision, together] of Map.groupBy(events, ({ kv }) => kv.mod_revision)) {
        const read: number = revision === at.revision ? at.number : 0
        for (const [index, event] of together.entries()) {
          if (index < read) continue
          at = { revision, number: index === together.length - 1 ? ALL : index + 1 }
          yield { kind: 'event', event, together, cursor: this.#cursorAt(at) }
        }
      }
    }
  }

  /** A caller that awaits it gets the error. */
  end(error: unknown): void {
    this.#failure = { error }
    this.#close()
    this.#wake()
  }

  async #now(call: Call): Promise<Position> {
    const { header } = await this.#options.client.ask(methods.range, { key: this.#range.key }, call)
    return { revision: header?.revision ?? 0, number: ALL }
  }

  #cursorAt({ revision, number }: Position): string {
    return `${this.#origin}:${revision}.${number}`
  }

  /** Null for anything that is not a cursor of ours. A revision that is yet to come is from before a restore (T75, restored snapshots). */
  #positionAt(cursor: string, now: Position): Position | null {
    const [, origin, revision, number] = /^(.*):(\d{1,16})\.(\d{1,16})$/.exec(cursor) ?? []
    if (origin !== this.#origin || Number(revision) > now.revision) return null
    return { revision: Number(revision), number: Number(number) }
  }

  /** Some events, all of a revision together. Null: they were compacted. */
  async #next(from: number): Promise<readonly Event[] | null> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure.error
      const response = this.#pending.shift()
      if (response === undefined) {
        if (this.#pause === undefined) this.#stop ??= this.#open(from)
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      } else if (response.canceled) {
        this.#close()
        return null
      } else {
        this.#pendingSize -= sizeOf(response)
        const events = this.#whole(response)
        if (events.length > 0) return events
      }
    }
  }

  /** Large answers come in pieces, and a piece may end within a revision. */
  #whole({ events, fragment }: WatchResponse): readonly Event[] {
    const all = this.#begun.length === 0 ? events : [...this.#begun, ...events]
    const last = all.at(-1)?.kv.mod_revision
    const end = fragment ? all.findIndex(({ kv }) => kv.mod_revision === last) : all.length
    this.#begun = all.slice(end)
    return all.slice(0, end)
  }

  #close(): void {
    this.#stop?.()
    this.#stop = undefined
    this.#pause?.cancel()
    this.#pause = undefined
    this.#forget()
  }

  #forget(): void {
    this.#pending = []
    this.#pendingSize = 0
    this.#begun = []
  }

  #open(start_revision: number): () => void {
    const { watches, clock, random } = this.#options
    // A history that has begun comes again from its beginning.
    this.#forget()
    return watches.add(
      { ...this.#range, start_revision, prev_kv: true, fragment: true },
      {
        onResponse: (response) => {
          this.#pending.push(response)
          this.#pendingSize += sizeOf(response)
          if (this.#pendingSize > MAX_PENDING) {
            this.#stop?.()
            this.#stop = undefined
          }
          this.#wake()
        },
        onLost: () => {
          this.#stop = undefined
          const pauseMs = defaults.pollMs + random.fraction() * defaults.pollJitterMs
          this.#pause = clock.setTimer(pauseMs, () => {
            this.#pause = undefined
            this.#wake()
          })
        },
      },
    )
  }
}

function sizeOf({ events }: WatchResponse): number {
  const size = ({ kv, prev_kv }: Event) => kv.value.length + (prev_kv?.value.length ?? 0) + EVENT_OVERHEAD
  return events.reduce((sum, event) => sum + size(event), EVENT_OVERHEAD)
}
