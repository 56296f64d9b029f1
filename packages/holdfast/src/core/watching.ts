/**
 * Watching without the engine's help: lists are compared at intervals. It shows every state that lasted for an
 * interval; a lease that came and went in between is seen only in the tokens that it used up.
 */
import type { Clock, HolderState, NameState, WaiterState, WatchEvent, WatchEventKind } from '../spi.ts'
import { keepProcessAlive, sleep } from './clock.ts'

interface Seen {
  readonly name: string
  readonly kind: 'held' | 'waiting'
  readonly state: HolderState | WaiterState
}

export async function* watchByListing(
  list: () => Promise<readonly NameState[]>,
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
  // A list has no past: whoever comes back with a cursor has missed an unknown number of events.
  if (options.cursor !== undefined) yield { kind: 'gap', cursor: cursor() }
  let before = new Map<string, Seen>()
  while (!signal.aborted) {
    const now = new Map<string, Seen>()
    for (const state of await list()) {
      for (const holder of state.holders)
        now.set(holder.id, { name: state.name, kind: 'held', state: holder })
      for (const waiter of state.waiters)
        now.set(waiter.id, { name: state.name, kind: 'waiting', state: waiter })
    }
    for (const { kind, seen } of changes(before, now)) {
      number++
      const { state } = seen
      const token = 'token' in state ? state.token : null
      yield { kind, name: seen.name, id: state.id, holder: state.holder, token, cursor: cursor() }
    }
    before = now
    await sleep(clock, intervalMs, { signal }).catch(() => {})
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

function* changes(
  before: ReadonlyMap<string, Seen>,
  now: ReadonlyMap<string, Seen>,
): Generator<{ kind: WatchEventKind; seen: Seen }> {
  for (const [id, seen] of before) {
    if (now.has(id)) continue
    yield { kind: seen.kind === 'held' ? 'released' : 'gave-up', seen }
  }
  for (const [id, seen] of now) {
    if (before.get(id)?.kind === seen.kind) continue
    yield { kind: seen.kind === 'held' ? 'acquired' : 'waiting', seen }
  }
}
