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

/** A reader that is so far behind reads again later. */
const MAX_PENDING = 1_000

/** `number`: how many events of the revision have been read. */
interface Position {
  readonly revision: number
  readonly number: number
}

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

  /** Null for anything that is not a cursor of ours. A revision that is yet to come is from before a restore (T75). */
  #positionAt(cursor: string, now: Position): Position | null {
    const [, origin, revision, number] = /^(.*):(\d{1,16})\.(\d{1,16})$/.exec(cursor) ?? []
    if (origin !== this.#origin || Number(revision) > now.revision) return null
    return { revision: Number(revision), number: Number(number) }
  }

  /** Some events, all of a revision together. Null: they were compacted. */
  async #next(from: number): Promise<readonly Event[] | null> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure.error
      if (this.#pause === undefined) this.#stop ??= this.#open(from)
      const response = this.#pending.shift()
      if (response === undefined)
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      else if (response.canceled) {
        this.#close()
        return null
      } else if (response.events.length > 0) return response.events
    }
  }

  #close(): void {
    this.#stop?.()
    this.#stop = undefined
    this.#pause?.cancel()
    this.#pause = undefined
    this.#pending = []
  }

  #open(start_revision: number): () => void {
    const { watches, clock, random } = this.#options
    // They come again.
    this.#pending = []
    return watches.add(
      { ...this.#range, start_revision, prev_kv: true },
      {
        onResponse: (response) => {
          this.#pending.push(response)
          if (this.#pending.length > MAX_PENDING) this.#close()
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
