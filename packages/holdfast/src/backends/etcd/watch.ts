/**
 * Events are read from etcd's own history of the keys of a namespace; a cursor is a revision and a number in it. What has been
 * compacted is answered with a gap and the current holders.
 *
 * All changes of one revision come together, so the keys beside a deleted claim tell why it ended: a mark says by force, the
 * session's key says expired. Otherwise its holder has released it.
 */
import * as etcd from '../../clients/etcd/index.ts'
import { toldOf } from '../../kit/claim-records.ts'
import { picture, type ToldEvent, watching } from '../../kit/watching.ts'
import type { Call, WatchEvent } from '../../spi.ts'
import type { Connection } from './connection.ts'
import { type Keys, modes } from './keys.ts'
import { type DataRecord, Found, foundClaim, type MarkRecord } from './records.ts'

const HOLDERS_AT_ONCE = 2_000
const DELETED = 1

/** `number`: how many events of the revision have been told. */
interface Position {
  readonly revision: number
  readonly number: number
}

const ALL = Number.MAX_SAFE_INTEGER

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
    const history = new etcd.History(connection.watches, connection.keys.all, connection)
    const leave = connection.lifetime.onCut(call, (error) => history.end(error))
    return { history, leave }
  }
  return watching(call, join, ({ history }) => eventsFrom(connection, history, origin, prefix, cursor, call))
}

async function* eventsFrom(
  connection: Connection,
  history: etcd.History,
  origin: string,
  prefix: string,
  cursor: string | undefined,
  call: Call,
): AsyncGenerator<WatchEvent> {
  const cursorOf = ({ revision, number }: Position) => `${origin}:${revision}.${number}`
  const now = async () => {
    const { revision } = await connection.read([etcd.get(connection.keys.all.key)], call)
    return { revision, number: ALL }
  }
  const start = await now()
  let at = cursor === undefined ? start : positionAt(origin, cursor, start)
  try {
    while (!call.cancelled) {
      // The revision of a position may have more events.
      const events =
        at === null ? null : await history.next(at.number === ALL ? at.revision + 1 : at.revision)
      if (events === null || at === null) {
        at = await now()
        const holders = holdersAt(connection, prefix, at.revision, call)
        yield* picture(holders, { restart: `${origin}:gap`, end: cursorOf(at) })
        continue
      }
      for (const { position, told } of toldAfter(at, connection.keys, events)) {
        at = position
        if (told?.name.startsWith(prefix)) yield { ...told, cursor: cursorOf(position) }
        if (call.cancelled) return
      }
    }
  } finally {
    history.end(new Error('nobody reads it any more'))
  }
}

/** Null for anything that is not a cursor of ours. A revision that is yet to come is from before a restore (T75). */
function positionAt(origin: string, cursor: string, now: Position): Position | null {
  const [, from, revision, number] = /^(.*):(\d{1,16})\.(\d{1,16})$/.exec(cursor) ?? []
  if (from !== origin || Number(revision) > now.revision) return null
  return { revision: Number(revision), number: Number(number) }
}

function* toldAfter(after: Position, keys: Keys, events: readonly etcd.Event[]) {
  for (const [revision, together] of Map.groupBy(events, ({ kv }) => kv.mod_revision)) {
    const tell = teller(keys, together)
    for (const [index, event] of together.entries()) {
      if (revision === after.revision && index < after.number) continue
      const number = index === together.length - 1 ? ALL : index + 1
      yield { position: { revision, number }, told: tell(event) }
    }
  }
}

/** Tells the events of one revision. */
function teller(keys: Keys, together: readonly etcd.Event[]): (event: etcd.Event) => ToldEvent | null {
  const forced = new Set<string>()
  const ended = new Set<number>()
  for (const { type, kv } of together) {
    const key = keys.parse(kv.key)
    const isMark = key?.kind === 'm' && type !== DELETED
    if (isMark && (JSON.parse(kv.value) as MarkRecord).reason === 'force-released') forced.add(key.attempt)
    if (key?.kind === 's' && type === DELETED) ended.add(key.lease)
  }
  return ({ type, kv, prev_kv }) => {
    const key = keys.parse(kv.key)
    if (key?.kind === 'data' && type !== DELETED) {
      const { data: _, token, ...by } = JSON.parse(kv.value) as DataRecord
      return { kind: 'data', name: key.name, ...by, token: BigInt(token) }
    }
    const mode = modes.find((each) => each === key?.kind)
    const stored = type === DELETED ? prev_kv : kv
    if (key === null || mode === undefined || stored === undefined) return null
    const claim = foundClaim(stored, key, mode)
    if (type !== DELETED) return toldOf(claim, claim.granted ? 'acquired' : 'waiting')
    if (!claim.granted) return toldOf(claim, 'gave-up')
    if (forced.has(key.attempt)) return toldOf(claim, 'force-released')
    return toldOf(claim, ended.has(key.lease) ? 'expired' : 'released')
  }
}

/** All of one revision, in pages. */
async function* holdersAt(
  { client, keys, lifetime }: Connection,
  prefix: string,
  revision: number,
  call: Call,
): AsyncGenerator<ToldEvent> {
  const range = keys.names(prefix)
  for (let from = range.key; ; ) {
    lifetime.begin(call)
    const page = { ...range, key: from, revision, limit: HOLDERS_AT_ONCE }
    const { kvs, more } = await client.ask(etcd.methods.range, page, call)
    for (const claim of new Found(keys, kvs, revision).claims)
      if (claim.granted) yield toldOf(claim, 'acquired')
    if (!more) return
    from = `${kvs.at(-1)?.key}\0`
  }
}
