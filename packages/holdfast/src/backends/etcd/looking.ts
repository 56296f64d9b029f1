/** What operators see: names, pages of them, and sessions, each read at one revision. */
import * as etcd from '../../clients/etcd/index.ts'
import type { SessionRecord } from '../../kit/claim-records.ts'
import type { Call, NameState, Page, PageRequest, SessionState } from '../../spi.ts'
import type { Connection } from './connection.ts'
import { Found, type FoundClaim, foundByName } from './records.ts'

/** One read has at most so many keys, with up to 4 KiB of data in every second one. The waiters of one name may be more. */
const KEYS_AT_ONCE = 2_000
/** A name that is held has two: the claim, and its data. */
const KEYS_OF_NAME = 2

export async function inspect(connection: Connection, name: string, call: Call): Promise<NameState | null> {
  const found = await connection.read([etcd.getAll(connection.keys.name(name))], call)
  return found.state(name, connection.clock.wallMs())
}

/**
 * In the order of the names' bytes, which is that of the keys. It reads as many keys as the page may need, so a page of names with many
 * waiters has fewer names than it may.
 */
export async function list(
  connection: Connection,
  prefix: string,
  { cursor, limit }: PageRequest,
  call: Call,
): Promise<Page<NameState>> {
  const { client, clock, keys, lifetime } = connection
  lifetime.begin(call)
  // And the first key of the next name, which shows that the last one is complete.
  const needed = Math.min(KEYS_OF_NAME * limit + 1, KEYS_AT_ONCE)
  const range = { ...keys.names(prefix, cursor), limit: needed }
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

/** All claims below a prefix as they were at a revision, in several reads. */
export async function* claimsAt(
  { client, keys }: Connection,
  prefix: string,
  revision: number,
  call: Call,
): AsyncGenerator<FoundClaim> {
  let range: etcd.Range | null = keys.names(prefix)
  while (range !== null) {
    const asked: etcd.RangeRequest = { ...range, revision, limit: KEYS_AT_ONCE }
    const { kvs, more } = await client.ask(etcd.methods.range, asked, call)
    yield* new Found(keys, kvs, revision).claims
    range = more ? { ...range, key: `${kvs.at(-1)?.key}\0` } : null
  }
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
