/** Makes one history of what several processes wrote, each with a `seq` of its own, on one clock. */
import type { HistoryEvent } from './history.ts'

/**
 * The events of each source keep their order. Where events of two sources have the same time, what begins goes before
 * what returns, so that operations which cannot be told apart count as concurrent: a checker may then miss a
 * violation, but does not invent one. Use a clock that is finer than the events.
 */
export function mergeEvents(sources: readonly (readonly HistoryEvent[])[]): HistoryEvent[] {
  const cursors = sources.map((events) => ({ events, next: 0 }))
  const merged: HistoryEvent[] = []
  for (;;) {
    let first: { readonly cursor: (typeof cursors)[number]; readonly event: HistoryEvent } | null = null
    for (const cursor of cursors) {
      const event = cursor.events[cursor.next]
      if (event !== undefined && (first === null || goesBefore(event, first.event))) first = { cursor, event }
    }
    if (first === null) return merged
    first.cursor.next++
    merged.push({ ...first.event, seq: merged.length + 1 })
  }
}

function goesBefore(one: HistoryEvent, other: HistoryEvent): boolean {
  if (one.at !== other.at) return one.at < other.at
  return one.kind !== 'return' && other.kind === 'return'
}
