/** Positions in the log of a namespace, and the holders that a watcher is told after a gap. */

import { allPages } from '../../../base/all-pages.ts'
import { type ToldEvent, toldEvent } from '../../../kit/watching.ts'
import type { Call } from '../../../spi.ts'
import type { Connection } from './connection.ts'
import { listPage } from './paging.ts'

export interface Position {
  readonly logId: string
  readonly at: string
}

/** The end of the log, and the server's time there. */
export interface Head extends Position {
  readonly nowMs: number
}

export async function* currentHolders(
  connection: Connection,
  prefix: string,
  head: Head,
  alsoLogged: Set<string>,
  call: Call,
): AsyncGenerator<ToldEvent> {
  // An item may be on two pages.
  const seen = new Set<string>()
  for await (const states of allPages((page) => listPage(connection, prefix, page, call)))
    for (const { name, holders, atMs } of states)
      for (const { id, holder, owner, token, heldForMs, session } of holders) {
        // The log tells of what was granted after its end was read. In one millisecond with that, or with this look, it cannot
        // be known; nor if the clock was set back (T109, events in the same tick).
        const grantedAtMs = atMs - heldForMs
        const isNewer = heldForMs > 0 && grantedAtMs > head.nowMs
        // Locks of other clients are not logged.
        if (isNewer || session === '' || seen.has(id)) continue
        seen.add(id)
        if (grantedAtMs >= head.nowMs) alsoLogged.add(id)
        yield toldEvent({ kind: 'acquired', name, id, holder, owner, token })
      }
}
