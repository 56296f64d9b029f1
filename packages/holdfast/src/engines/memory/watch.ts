/** Watching reads the engine's log, which is in this process. */
import { type FollowedLog, followLog } from '../../kit/follow-log.ts'
import { currentHolders } from '../../kit/watching.ts'
import type { Call, WatchEvent } from '../../spi.ts'
import type { Connection } from './backend.ts'

/** Ends when the call is cancelled; throws when the connection is closed. */
export function watch(
  { engine, namespace, lifetime }: Connection,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  engine.log.watch()
  // Taken now and not at the first read, so that nothing between the two is missed.
  const start = engine.log.last
  const log: FollowedLog<number> = {
    news: engine.log,
    join: () => engine.addWatcher(),
    head() {
      lifetime.begin(call)
      return start
    },
    read(from) {
      lifetime.begin(call)
      return engine.log.after(from, namespace)
    },
    picture: (prefix) => ({
      at: engine.log.last,
      restart: `${engine.id}:gap`,
      holders: currentHolders((page) => engine.list(namespace, prefix, page)),
    }),
    cursorOf: (number) => `${engine.id}:${number}`,
    positionAt(cursor) {
      const [id, position = ''] = cursor.split(':')
      return id === engine.id && /^\d{1,15}$/.test(position) ? Number(position) : null
    },
  }
  return followLog(log, prefix, cursor, call)
}
