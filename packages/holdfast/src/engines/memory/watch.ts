/**
 * Watching reads the engine's log from a cursor on. A cursor that the log no longer reaches back to, or that is
 * another engine's, starts with a gap and the current holders: less than what happened, but a true picture.
 */
import { currentHolders, picture, watching } from '../../kit/watching.ts'
import type { Call, WatchEvent } from '../../spi.ts'
import type { Connection } from './backend.ts'

/** Ends when the call is cancelled; throws when the connection is closed. */
export function watch(
  { engine, namespace, lifetime }: Connection,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const { log } = engine
  const cursorAt = (position: number | 'gap') => `${engine.id}:${position}`
  // Taken now and not at the first read, so that nothing between the two is missed.
  const start = cursor === undefined ? log.last : positionOf(cursor, engine.id)

  async function* events(): AsyncGenerator<WatchEvent> {
    let seen = start
    while (!call.cancelled) {
      lifetime.begin(call)
      if (seen === null || !log.reachesBackTo(seen)) {
        seen = log.last
        const holders = currentHolders((page) => engine.list(namespace, prefix, page))
        yield* picture(holders, { restart: cursorAt('gap'), end: cursorAt(seen) })
        continue
      }
      const next = log.at(seen + 1)
      if (next === undefined) {
        await log.next(log.changes, call)
        continue
      }
      seen = next.number
      if (next.namespace === namespace && next.event.name.startsWith(prefix))
        yield { ...next.event, cursor: cursorAt(seen) }
    }
  }

  return watching(call, () => ({ leave: engine.addWatcher() }), events)
}

/** Null for anything that this engine did not hand out as a cursor to go on from. */
function positionOf(cursor: string, engineId: string): number | null {
  const [id, position = ''] = cursor.split(':')
  return id === engineId && /^\d{1,15}$/.test(position) ? Number(position) : null
}
