/** What operators see: names, pages of them, and sessions, each read at one revision. */

import { getAll, methods } from '../../clients/etcd/index.ts'
import {
  type Call,
  LOCK_CAPACITY,
  type NameState,
  type Page,
  type PageRequest,
  type SessionState,
} from '../../spi.ts'
import type { Connection } from './connection.ts'
import { modeOf } from './keys.ts'
import { Found, type FoundClaim, type SessionRecord } from './records.ts'

/** A page reads at most so many keys; the waiters of one name may be more. */
const KEYS_AT_ONCE = 2_000

export async function inspect(connection: Connection, name: string, call: Call): Promise<NameState | null> {
  const found = await connection.read([getAll(connection.keys.name(name))], call)
  return stateOf(connection, name, found)
}

/** In the order of the names' bytes, which is that of the keys. */
export async function list(
  connection: Connection,
  prefix: string,
  { cursor, limit }: PageRequest,
  call: Call,
): Promise<Page<NameState>> {
  connection.lifetime.begin(call)
  const range = { ...connection.keys.names(prefix, cursor), limit: KEYS_AT_ONCE }
  const { kvs, more, header } = await connection.client.ask(methods.range, range, call)
  const byName = Map.groupBy(kvs, ({ key }) => connection.keys.parse(key)?.name ?? '')
  const names = [...byName.keys()]
  // The last name may go on after what was read.
  const cut = more ? names.pop() : undefined
  if (names.length === 0 && cut !== undefined) {
    const state = await inspect(connection, cut, call)
    return { items: state === null ? [] : [state], next: cut }
  }
  const shown = names.slice(0, limit)
  const states = shown.map((name) =>
    stateOf(connection, name, new Found(connection.keys, byName.get(name) ?? [], header?.revision ?? 0)),
  )
  const isLast = !more && shown.length === names.length
  return { items: states.filter((state) => state !== null), next: isLast ? null : (shown.at(-1) ?? null) }
}

export async function sessions(
  connection: Connection,
  { cursor, limit }: PageRequest,
  call: Call,
): Promise<Page<SessionState>> {
  connection.lifetime.begin(call)
  const { key, range_end } = connection.keys.sessions
  const range = { key: cursor === undefined ? key : `${key}${cursor}\0`, range_end, limit }
  const { kvs, more } = await connection.client.ask(methods.range, range, call)
  const items = kvs.map(({ value }) => {
    const { id, holder, ttlMs } = JSON.parse(value) as SessionRecord
    return { id, holder, ttlMs, expiresInMs: ttlMs }
  })
  return { items, next: more ? (kvs.at(-1)?.key.slice(key.length) ?? null) : null }
}

/** Null: nothing of it is in use. */
function stateOf({ clock }: Connection, name: string, found: Found): NameState | null {
  const { claims, closed, data } = found
  if (claims.length + closed.length === 0 && data === undefined) return null
  const atMs = Math.round(clock.wallMs())
  const agoMs = ({ record }: FoundClaim) => Math.max(0, atMs - record.sinceMs)
  const holders = claims.filter(({ granted }) => granted)
  const waiters = claims.filter(({ granted }) => !granted)
  return {
    name,
    capacity: found.capacity ?? LOCK_CAPACITY,
    holders: holders.map((claim) => {
      const shown = claimState(claim)
      return { ...shown, token: claim.token, heldForMs: agoMs(claim), expiresInMs: shown.ttlMs }
    }),
    waiters: waiters.map((claim) => ({ ...claimState(claim), waitingForMs: agoMs(claim) })),
    ...(data !== undefined && { data: data.data }),
    // How much longer it is closed only etcd's leader knows.
    ...(closed.length === 0 && { closedForMs: 0 }),
    atMs,
  }
}

function claimState({ id, kind, weight, record }: FoundClaim) {
  const { session, owner, note } = record
  return {
    id,
    holder: session.holder,
    ...(owner !== undefined && { owner }),
    mode: modeOf(kind),
    weight,
    ...(note !== undefined && { note }),
    session: session.id,
    ttlMs: session.ttlMs,
  }
}
