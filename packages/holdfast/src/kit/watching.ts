/** The common part of every `watch`: joining and leaving, waiting for changes, and the picture after a gap. */
import { allPages } from '../base/all-pages.ts'
import { afterThisTurn } from '../base/clock.ts'
import type { Call, NameState, Page, PageRequest, WatchEvent, WatchEventKind } from '../spi.ts'

const HOLDERS_PER_TURN = 1_000

/** An event before it has a cursor. */
export interface ToldEvent {
  readonly kind: WatchEventKind
  readonly name: string
  readonly id: string
  readonly holder: string
  readonly owner?: string
  readonly token: bigint | null
}

/** The event of a record with these fields, as it is told. Engines have null, or nothing, for an owner that is missing. */
export function toldEvent(
  record: Omit<ToldEvent, 'owner'> & { readonly owner?: string | null | undefined },
): ToldEvent {
  const { kind, name, id, holder, owner, token } = record
  return owner == null ? { kind, name, id, holder, token } : { kind, name, id, holder, owner, token }
}

/** The holders on all pages of a list, for `picture`. */
export async function* currentHolders(
  list: (page: PageRequest) => Page<NameState> | Promise<Page<NameState>>,
): AsyncGenerator<ToldEvent> {
  for await (const states of allPages(list, HOLDERS_PER_TURN))
    for (const { name, holders } of states)
      for (const holder of holders) yield toldEvent({ kind: 'acquired', name, ...holder })
}

/** One watch, from `join` to `leave`, which is called once. It ends quietly when the call is cancelled. */
export function watching<J extends { readonly leave: () => void }>(
  call: Call,
  join: () => J,
  events: (joined: J) => AsyncIterable<WatchEvent>,
): AsyncIterable<WatchEvent> {
  return {
    async *[Symbol.asyncIterator]() {
      const joined = join()
      let isJoined = true
      const leave = () => {
        if (isJoined) joined.leave()
        isJoined = false
      }
      // A consumer that does not ask for the next event any more would otherwise stay joined.
      const untie = call.onCancel(leave)
      try {
        yield* events(joined)
      } catch (error) {
        if (!call.cancelled) throw error
      } finally {
        untie()
        leave()
      }
    },
  }
}

/**
 * A gap, and the current holders. A watcher that stops in the middle of this picture must get all of it again, so only its
 * end is a cursor to go on from.
 */
export async function* picture(
  holders: Iterable<ToldEvent> | AsyncIterable<ToldEvent>,
  cursors: { readonly restart: string; readonly end: string },
): AsyncGenerator<WatchEvent> {
  let before: ToldEvent | { readonly kind: 'gap' } = { kind: 'gap' }
  let count = 0
  for await (const holder of holders) {
    yield { ...before, cursor: cursors.restart }
    before = holder
    // An engine in this process answers without a turn of the event loop.
    if (++count % HOLDERS_PER_TURN === 0) await new Promise<void>(afterThisTurn)
  }
  yield { ...before, cursor: cursors.end }
}

/** Tells watchers of one process that there may be something new. */
export class Changes {
  readonly #wakeUps = new Set<() => void>()
  #count = 0

  /** Grows with everything that may be new. */
  get changes(): number {
    return this.#count
  }

  changed(): void {
    this.#count++
    if (this.#wakeUps.size === 0) return
    const wakeUps = [...this.#wakeUps]
    this.#wakeUps.clear()
    for (const wakeUp of wakeUps) wakeUp()
  }

  /** Calls `wakeUp` once, at the next change; the returned function takes it back. */
  onNext(wakeUp: () => void): () => void {
    this.#wakeUps.add(wakeUp)
    return () => void this.#wakeUps.delete(wakeUp)
  }

  /** Waits until there are more changes than `seen`, or the call is cancelled. */
  next(seen: number, call: Call): Promise<void> {
    if (this.#count !== seen || call.cancelled) return Promise.resolve()
    return new Promise((resolve) => {
      const wakeUp = () => {
        forget()
        untie()
        resolve()
      }
      const forget = this.onNext(wakeUp)
      const untie = call.onCancel(wakeUp)
    })
  }
}
