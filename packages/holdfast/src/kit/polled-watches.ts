/**
 * Watches of an engine that tells changes by long polls: a poll is answered with all keys below a prefix, as soon as something there is
 * newer than an index. Keys lie in groups, one for each name. All watches of a process share a few polls (T89, a long poll per waiter):
 * one for each of the first groups, and one for the names of all keys, which tells of the others what is gone.
 *
 *   first watch of a group ──▶ polling ──answered──▶ each watch is judged ──pause──▶ polling
 *   polling ──failed──▶ growing pause ──▶ polling, from the same index: snapshots are compared, so nothing is missed
 *   polling ──the index is below 1, or goes back──▶ all its watches are lost ──▶ polling, from 0
 *   answered ──nobody watches any more──▶ over: a server keeps a poll that was given up, so none is
 */
import { type Clock, pause } from '../base/clock.ts'
import { growingPauseMs } from '../base/pauses.ts'
import type { WatchedKey } from './ordered-store.ts'

export interface PolledKeys<S> {
  readonly index: bigint
  /** The version of each key. Null: the poll tells only that it is there. */
  readonly keys: ReadonlyMap<string, bigint | null>
  /** The whole snapshot, for the watches that it wakes. */
  readonly seen?: S
}

export interface PolledWatchesOptions<S> {
  readonly clock: Clock
  /** Settles within a bound of its own. `group` null: the keys of all groups, without versions. */
  readonly poll: (group: string | null, index: bigint, signal: AbortSignal) => Promise<PolledKeys<S>>
  readonly groupOf: (key: string) => string
  /** The most groups with a poll of their own. 8: there are nine polls at most. */
  readonly maxGroups: number
}

interface Watch<S> {
  readonly keys: readonly WatchedKey[]
  readonly version: bigint
  readonly onWake: (wake: 'changed' | 'lost', seen?: S) => void
}

const FAILED = { firstMs: 200, longestMs: 5_000 }
/** Between the starts of two polls, so that changes which come together are one answer. The keys of all groups are many. */
const PACE_MS = { group: 2, all: 100 }

export class PolledWatches<S> {
  readonly #options: PolledWatchesOptions<S>
  readonly #polls = new Map<string | null, Poll<S>>()
  readonly #end = new AbortController()

  constructor(options: PolledWatchesOptions<S>) {
    this.#options = options
  }

  /** Polls in flight, or between two of them. */
  get count(): number {
    return this.#polls.size
  }

  /** As `OrderedStore.watch`. All keys are in one group. The returned function ends the watch. */
  watch(keys: readonly WatchedKey[], version: bigint, onWake: Watch<S>['onWake']): () => void {
    const own = this.#options.groupOf(keys[0]?.key ?? '')
    const isFull = this.#polls.size - Number(this.#polls.has(null)) >= this.#options.maxGroups
    const group = isFull && !this.#polls.has(own) ? null : own
    const running = this.#polls.get(group)
    const poll = running ?? new Poll(this.#options, group, this.#end.signal)
    const stop = poll.add({ keys, version, onWake })
    if (running === undefined) {
      this.#polls.set(group, poll)
      void poll.run(() => this.#polls.delete(group))
    }
    return stop
  }

  /** Ends the polls, without telling the watches. */
  close(): void {
    this.#end.abort()
  }
}

class Poll<S> {
  readonly #options: PolledWatchesOptions<S>
  readonly #group: string | null
  readonly #signal: AbortSignal
  readonly #watches = new Set<Watch<S>>()
  #last: PolledKeys<S> | undefined

  constructor(options: PolledWatchesOptions<S>, group: string | null, signal: AbortSignal) {
    this.#options = options
    this.#group = group
    this.#signal = signal
  }

  add(watch: Watch<S>): () => void {
    this.#watches.add(watch)
    const last = this.#last
    // A key that has gone since the view was read may be known already (T19, lost wake-ups). It is told after this call.
    if (last !== undefined) void Promise.resolve().then(() => this.#judge(watch, last))
    return () => void this.#watches.delete(watch)
  }

  async run(onEnd: () => void): Promise<void> {
    const { clock, poll } = this.#options
    const paceMs = this.#group === null ? PACE_MS.all : PACE_MS.group
    let failed = 0
    while (this.#watches.size > 0 && !this.#signal.aborted) {
      const startedMs = clock.monotonicMs()
      try {
        this.#answered(await poll(this.#group, this.#last?.index ?? 0n, this.#signal))
        failed = 0
      } catch {
        // Waiters look at each keep-alive, and learn there what is wrong.
        failed++
      }
      const restMs = startedMs + paceMs - clock.monotonicMs()
      const pauseMs = failed === 0 ? restMs : growingPauseMs(failed - 1, FAILED)
      if (pauseMs > 0) await pause(clock, pauseMs, { signal: this.#signal })
    }
    onEnd()
  }

  #answered(next: PolledKeys<S>): void {
    const before = this.#last
    const isLost = next.index < 1n || next.index < (before?.index ?? 0n)
    this.#last = isLost ? undefined : next
    for (const watch of [...this.#watches])
      if (isLost) this.#tell(watch, 'lost')
      else this.#judge(watch, next, before)
  }

  #judge(watch: Watch<S>, now: PolledKeys<S>, before?: PolledKeys<S>): void {
    if (now.index < watch.version) return
    const isChanged = watch.keys.some(({ key, until }) => {
      const isRange = key.endsWith('/')
      const found = isRange ? youngestBelow(now, key) : now.keys.get(key)
      if (found === undefined) return !isRange
      if (until === 'deleted') return false
      return found === null ? before !== undefined && this.#isMoved(key, before, now) : found > watch.version
    })
    if (isChanged) this.#tell(watch, 'changed', now.seen)
  }

  /** Keys of its group came or went. That one was written again, the poll of all groups does not tell. */
  #isMoved(key: string, before: PolledKeys<S>, now: PolledKeys<S>): boolean {
    const group = this.#options.groupOf(key)
    const keysOf = ({ keys }: PolledKeys<S>) => [...keys.keys()].filter((each) => each.startsWith(group))
    return keysOf(before).join('\n') !== keysOf(now).join('\n')
  }

  #tell(watch: Watch<S>, wake: 'changed' | 'lost', seen?: S): void {
    if (this.#watches.delete(watch)) watch.onWake(wake, seen)
  }
}

function youngestBelow<S>({ keys }: PolledKeys<S>, prefix: string): bigint | null | undefined {
  const versions = [...keys].filter(([key]) => key.startsWith(prefix)).map(([, version]) => version)
  return versions.reduce<bigint | null | undefined>(
    (youngest, version) => (version === null || version > (youngest ?? 0n) ? version : youngest),
    undefined,
  )
}
