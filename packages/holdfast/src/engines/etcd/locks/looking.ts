/** What operators see: names, pages of them, and sessions, each read at one revision. */

import type { SessionRecord } from '../../../kit/claim-records.ts'
import type { Call, NameState, Page, PageRequest, SessionState } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import type { Connection } from './connection.ts'
import { foundByName } from './records.ts'

/** A page reads at most so many keys; the waiters of one name may be more. */
const KEYS_AT_ONCE = 2_000

export async function inspect(connection: Connection, name: string, call: Call): Promise<NameState | null> {
  const found = await connection.read([etcd.getAll(connection.keys.name(name))], call)
  return found.state(name, connection.clock.wallMs())
}

/** In the order of the names' bytes, which is that of the keys. */
export async function list(
  connection: Connection,
  prefix: string,
  { cursor, limit }: PageRequest,
  call: Call,
): Promise<Page<NameState>> {
  const { client, clock, keys, lifetime } = connection
  lifetime.begin(call)
  const range = { ...keys.names(prefix, cursor), limit: KEYS_AT_ONCE }
  const { kvs, more, header } = await client.ask(etcd.methods.range, range, call)
  const found = foundByName(keys, kvs, header?.revision ?? 0)
  const names = [...found.keys()]
  // The last name may go on after what was read.
  const cut = more ? names.pop() : undefined
  if (names.length === 0 && cut !== undefined) {
    const state = await inspect(connection, cut, call)
    return { items: state === null ? [] : [state], next: cut }
  }
  const shown = names.slice(0, limit)
  const states = shown.map((name) => found.get(name)?.state(name, clock.wallMs()) ?? null)
  const isLast = !more && shown.length === names.length
  return { items: states.filter((state) => state !== null), next: isLast ? null : (shown.at(-1) ?? null) }
}

export async function sessions(
  { client, keys, lifetime }: Connection,
  { cursor, limit }: PageRequest,
  call: Call,
): Promise<Page<SessionState>> {
  lifetime.begin(call)
  const { key, range_end } = keys.sessions
  const range = { key: cursor === undefined ? key : `${key}${cursor}\0`, range_end, limit }
  const { kvs, more } = await client.ask(etcd.methods.range, range, call)
  const items = kvs.map(({ value }) => {
    const { id, holder, ttlMs } = JSON.parse(value) as SessionRecord
    return { id, holder, ttlMs, expiresInMs: ttlMs }
  })
  return { items, next: more ? (kvs.at(-1)?.key.slice(key.length) ?? null) : null }
}
