/** Reads etcd's history of a range of keys, from a revision on. A watch that is lost is opened again where it was. */
import type { Clock, Timer } from '../../base/clock.ts'
import { defaults } from '../../base/defaults.ts'
import type { Random } from '../../base/ids.ts'
import type { Event, WatchResponse } from './messages.ts'
import type { Range } from './transactions.ts'
import type { Watches } from './watches.ts'

/** A reader that is so far behind reads again later. */
const MAX_PENDING = 1_000

export class History {
  readonly #watches: Watches
  readonly #range: Range
  readonly #time: { readonly clock: Clock; readonly random: Random }
  #pending: WatchResponse[] = []
  #stop: (() => void) | undefined
  #pause: Timer | undefined
  #wake: () => void = () => {}
  #failure: { readonly error: unknown } | undefined

  constructor(watches: Watches, range: Range, time: { readonly clock: Clock; readonly random: Random }) {
    this.#watches = watches
    this.#range = range
    this.#time = time
  }

  /** The next events, all of a revision together; `from` is the first revision that has not been read. Null: it was compacted. */
  async next(from: number): Promise<readonly Event[] | null> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure.error
      if (this.#pause === undefined) this.#stop ??= this.#open(from)
      const response = this.#pending.shift()
      if (response === undefined) await new Promise<void>((resolve) => (this.#wake = resolve))
      else if (response.canceled) {
        this.#close()
        return null
      } else if (response.events.length > 0) return response.events
    }
  }

  /** A pending `next` rejects with the error. */
  end(error: unknown): void {
    this.#failure = { error }
    this.#close()
    this.#wake()
  }

  #close(): void {
    this.#stop?.()
    this.#stop = undefined
    this.#pause?.cancel()
    this.#pending = []
  }

  #open(start_revision: number): () => void {
    // They come again.
    this.#pending = []
    return this.#watches.add(
      { ...this.#range, start_revision, prev_kv: true },
      {
        onResponse: (response) => {
          this.#pending.push(response)
          if (this.#pending.length > MAX_PENDING) this.#close()
          this.#wake()
        },
        onLost: () => {
          const { clock, random } = this.#time
          this.#stop = undefined
          this.#pause = clock.setTimer(defaults.pollMs + random.fraction() * defaults.pollJitterMs, () => {
            this.#pause = undefined
            this.#wake()
          })
        },
      },
    )
  }
}
