/**
 * Events are read from etcd's own history of the keys of a namespace. All changes of one revision come together, so the keys beside a
 * deleted claim tell why it ended: a mark says by force, the session's key says expired. Otherwise its holder has released it.
 */

import type { DataRecord, MarkRecord } from '../../../kit/claim-records.ts'
import { toldOf } from '../../../kit/stored-name.ts'
import { picture, type ToldEvent, watching } from '../../../kit/watching.ts'
import type { Call, WatchEvent } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import type { Connection } from './connection.ts'
import type { Keys } from './keys.ts'
import { claimsAt } from './names.ts'
import { etcdClaim } from './records.ts'

const DELETED = 1

/** Ends when the call is cancelled; throws when the backend is closed. `origin` tells cursors of another cluster or epoch. */
export function watch(
  connection: Connection,
  origin: string,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncIterable<WatchEvent> {
  const join = () => {
    connection.lifetime.begin(call)
    const history = new etcd.History(connection, connection.keys.all, origin)
    const untie = connection.lifetime.onCut(call, (error) => history.end(error))
    const leave = () => {
      untie()
      history.end(new Error('it is not read any more'))
    }
    return { history, leave }
  }
  return watching(call, join, ({ history }) => told(connection, prefix, history.from(cursor, call), call))
}

async function* told(
  connection: Connection,
  prefix: string,
  changes: AsyncIterable<etcd.Change>,
  call: Call,
): AsyncGenerator<WatchEvent> {
  const { keys } = connection
  async function* holdersAt(revision: number) {
    for await (const claim of claimsAt(connection, prefix, revision, call))
      if (claim.granted) yield toldOf(claim, 'acquired')
  }
  let tell = teller(keys, [])
  let last: readonly etcd.Event[] = []
  for await (const change of changes) {
    if (change.kind === 'gap') {
      yield* picture(holdersAt(change.revision), { restart: change.restart, end: change.cursor })
      continue
    }
    if (change.together !== last) tell = teller(keys, change.together)
    last = change.together
    const event = tell(change.event)
    if (event?.name.startsWith(prefix)) yield { ...event, cursor: change.cursor }
    if (call.cancelled) return
  }
}

/** Tells the events of one revision. */
function teller(keys: Keys, together: readonly etcd.Event[]): (event: etcd.Event) => ToldEvent | null {
  const forced = new Set<string>()
  const ended = new Set<number>()
  for (const { type, kv } of together) {
    const key = keys.parse(kv.key)
    const isMark = key?.kind === 'm' && type !== DELETED
    if (isMark && (JSON.parse(kv.value) as MarkRecord).reason === 'force-released') forced.add(key.id)
    if (key?.kind === 's' && type === DELETED) ended.add(key.lease)
  }
  return ({ type, kv, prev_kv }) => {
    const key = keys.parse(kv.key)
    if (key?.kind === 'data' && type !== DELETED) {
      const { data: _, token, ...by } = JSON.parse(kv.value) as DataRecord
      return { kind: 'data', name: key.name, ...by, token: BigInt(token) }
    }
    const stored = type === DELETED ? prev_kv : kv
    const claim = stored === undefined ? null : etcdClaim(stored, key)
    if (claim === null) return null
    if (type !== DELETED) return toldOf(claim, claim.granted ? 'acquired' : 'waiting')
    if (!claim.granted) return toldOf(claim, 'gave-up')
    if (forced.has(claim.attempt)) return toldOf(claim, 'force-released')
    return toldOf(claim, ended.has(claim.lease) ? 'expired' : 'released')
  }
}
