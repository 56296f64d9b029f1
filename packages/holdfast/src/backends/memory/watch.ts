/**
 * Watching reads the engine's log from a cursor on. A cursor that the log no longer reaches back to, or that is
 * another engine's, starts with a gap and the current holders: less than what happened, but a true picture.
 */
import { picture, type ToldEvent, watching } from '../../kit/watching.ts'
import type { Call, WatchEvent } from '../../spi.ts'
import type { Connection } from './backend.ts'
import type { MemoryEngine } from './engine.ts'
import type { LoggedEvent } from './event-log.ts'

/** Ends when the call is cancelled; throws when the connection is closed. */
export function watch(
  connection: Connection,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const { engine, namespace } = connection
  // Taken now and not at the first read, so that nothing between the two is missed.
  const start = cursor === undefined ? engine.log.last : readCursor(engine, cursor)
  const concerns = (event: LoggedEvent) => event.namespace === namespace && event.name.startsWith(prefix)

  return watching(
    call,
    () => ({ leave: engine.addWatcher() }),
    async function* () {
      let seen = start
      while (!call.cancelled) {
        connection.lifetime.begin(call)
        if (seen === null || !engine.log.reachesBackTo(seen)) {
          seen = engine.log.last
          const cursors = { restart: cursorOf(engine, 'gap'), end: cursorOf(engine, seen) }
          yield* picture(currentHolders(engine, namespace, prefix), cursors)
          continue
        }
        const event = engine.log.at(seen + 1)
        if (event === null) {
          await nextEvent(connection, call)
          continue
        }
        seen = event.sequence
        if (concerns(event)) yield publicEvent(engine, event)
      }
    },
  )
}

function currentHolders(engine: MemoryEngine, namespace: string, prefix: string): readonly ToldEvent[] {
  return engine.list(namespace, prefix).items.flatMap(({ name, holders }) =>
    holders.map(({ id, holder, owner, token }) => ({
      kind: 'acquired' as const,
      name,
      id,
      holder,
      ...(owner === undefined ? {} : { owner }),
      token,
    })),
  )
}

function publicEvent(engine: MemoryEngine, event: LoggedEvent): WatchEvent {
  const { kind, name, id, holder, owner, token, sequence } = event
  const cursor = cursorOf(engine, sequence)
  return { kind, name, id, holder, ...(owner === undefined ? {} : { owner }), token, cursor }
}

function nextEvent(connection: Connection, call: Call): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      untie()
      stopListening()
      resolve()
    }
    const stopListening = connection.engine.log.onNext(done)
    const untie = connection.lifetime.onCut(call, done)
  })
}

function cursorOf(engine: MemoryEngine, position: number | 'gap'): string {
  return `${engine.id}:${position}`
}

/** Null for anything that this engine did not hand out as a cursor to go on from. */
function readCursor(engine: MemoryEngine, cursor: string): number | null {
  const [id, position] = cursor.split(':')
  return id === engine.id && position !== undefined && /^\d{1,15}$/.test(position) ? Number(position) : null
}
