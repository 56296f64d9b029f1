/**
 * Watching without the engine's help: lists are compared at intervals, page by page. It shows every state that lasted for
 * an interval; a lease that came and went in between is seen only in the tokens that it used up. It cannot tell why a
 * lease has ended.
 */

import { keepProcessAlive, pause } from '../base/clock.ts'
import type { ClaimState, Clock, HolderState, NameState, WatchEvent, WatchEventKind } from '../spi.ts'

interface Seen {
  readonly name: string
  readonly kind: 'held' | 'waiting'
  readonly claim: ClaimState | HolderState
  /** The data of its name. */
  readonly data: string | undefined
}

export async function* watchByListing(
  pages: () => AsyncIterable<readonly NameState[]>,
  options: {
    readonly clock: Clock
    readonly intervalMs: number
    readonly signal: AbortSignal
    readonly cursor?: string
  },
): AsyncGenerator<WatchEvent> {
  const { clock, intervalMs, signal } = options
  let number = 0
  const cursor = () => `list:${number}`
  const event = (kind: WatchEventKind, { name, claim }: Seen): WatchEvent => {
    number++
    const { id, holder, owner } = claim
    const token = 'token' in claim ? claim.token : null
    return { kind, name, id, holder, ...(owner !== undefined && { owner }), token, cursor: cursor() }
  }
  // A list has no past: a watcher that comes back with a cursor has missed an unknown number of events.
  if (options.cursor !== undefined) yield { kind: 'gap', cursor: cursor() }
  let before: Map<string, Seen> | undefined
  while (!signal.aborted) {
    const now = new Map<string, Seen>()
    for await (const states of pages())
      for (const state of states) for (const seen of claimsOf(state)) now.set(seen.claim.id, seen)
    // The watch starts now. After a gap the current holders are told.
    before ??=
      options.cursor === undefined ? now : new Map([...now].filter(([, { kind }]) => kind !== 'held'))
    for (const [id, seen] of before)
      if (!now.has(id)) yield event(seen.kind === 'held' ? 'ended' : 'gave-up', seen)
    for (const [id, seen] of now) {
      const earlier = before.get(id)
      if (earlier?.kind !== seen.kind) yield event(seen.kind === 'held' ? 'acquired' : 'waiting', seen)
      else if (seen.kind === 'held' && seen.data !== undefined && earlier.data !== seen.data)
        yield event('data', seen)
    }
    before = now
    await pause(clock, intervalMs, { signal })
  }
}

/** A pending `for await` keeps the process alive like every pending call; between two events it does not. */
export async function* keptAliveWhilePending<T>(clock: Clock, events: AsyncIterable<T>): AsyncGenerator<T> {
  let alive = keepProcessAlive(clock)
  try {
    for await (const event of events) {
      alive.cancel()
      yield event
      alive = keepProcessAlive(clock)
    }
  } finally {
    alive.cancel()
  }
}

function* claimsOf({ name, holders, waiters, data }: NameState): Generator<Seen> {
  for (const claim of holders) yield { name, kind: 'held', claim, data }
  for (const claim of waiters) yield { name, kind: 'waiting', claim, data }
}
