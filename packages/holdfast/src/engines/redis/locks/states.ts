/** The operators' view of names and sessions, read from the answers of the scripts. */

import { publicIdOf } from '../../../base/ids.ts'
import { claimState } from '../../../kit/backend-kit.ts'
import { type ToldEvent, toldEvent } from '../../../kit/watching.ts'
import {
  type Call,
  type HolderState,
  type InspectCall,
  LOCK_CAPACITY,
  type Mode,
  type NameState,
  type SessionState,
  type WaiterState,
  type WatchEventKind,
} from '../../../spi.ts'
import { foreignHolder, type RedisReply } from '../client/index.ts'
import { readToken } from './answers.ts'
import type { Connection } from './connection.ts'
import { inspectScript } from './scripts/operators.ts'
import { findSessionScript } from './scripts/sessions.ts'

export async function inspect(
  connection: Connection,
  name: string,
  call: InspectCall,
): Promise<NameState | null> {
  const wanted = call.holdersOnly === true ? ['holders'] : []
  return readName(name, await connection.runFor(inspectScript, name, wanted, call))
}

/** Null if there is no such session. */
export async function findSession(
  { client, keys }: Connection,
  id: string,
  call: Call,
): Promise<{ readonly leftMs: number; readonly ttlMs: number; readonly holder: string } | null> {
  const found = await client.run(findSessionScript, [keys.session(id)], [], call.signal)
  if (!Array.isArray(found)) return null
  const [left, ttl, holder] = found as readonly (string | number)[]
  return { leftMs: Number(left), ttlMs: Number(ttl), holder: String(holder) }
}

export async function inspectSession(
  connection: Connection,
  id: string,
  call: Call,
): Promise<SessionState | null> {
  const found = await findSession(connection, id, call)
  if (found === null) return null
  const { ttlMs, holder, leftMs } = found
  return { id: publicIdOf(id), holder, ttlMs, expiresInMs: leftMs < 0 ? Number.POSITIVE_INFINITY : leftMs }
}

function readName(name: string, reply: RedisReply): NameState | null {
  if (!Array.isArray(reply)) return null
  const [kind, capacity, closed, data, holders, waiters, now, left, digest] = reply as readonly RedisReply[]
  const [text] = list(data)
  return {
    name,
    capacity: Number(capacity) || LOCK_CAPACITY,
    holders:
      kind === 'foreign'
        ? [foreignHolder(String(digest), Number(left))]
        : list(holders).map((each) => readHolder(each, Number(now))),
    waiters: list(waiters).map(readWaiter),
    ...(typeof text === 'string' && { data: text }),
    closedForMs: Math.max(0, Number(closed)),
    atMs: Number(now),
  }
}

function readHolder(reply: RedisReply, nowMs: number): HolderState {
  const [who, weight, mode, token, since, left, body] = list(reply).map(String)
  return {
    ...claimState({ ...readClaim(who, body), mode: mode as Mode, weight: Number(weight) }),
    token: readToken(token ?? ''),
    heldForMs: Math.max(0, nowMs - Number(since)),
    expiresInMs: Number(left),
  }
}

function readWaiter(reply: RedisReply): WaiterState {
  const [who, weight, mode, waiting, body] = list(reply).map(String)
  return {
    ...claimState({ ...readClaim(who, body), mode: mode as Mode, weight: Number(weight) }),
    waitingForMs: Math.max(0, Number(waiting)),
  }
}

/** Who: `<attempt>|<public id of the session>`. Body: `<lock delay>|<ttl>|<json of label, note and owner>`. */
function readClaim(who = '', body = '') {
  const [, ttl, json = '[]'] = /^\d+\|(\d+)\|(.*)$/s.exec(body) ?? []
  const [holder, note, owner] = JSON.parse(json) as (string | null | undefined)[]
  return {
    id: publicIdOf(who),
    holder: holder ?? '',
    owner,
    note,
    session: who.slice(who.indexOf('|') + 1),
    ttlMs: Number(ttl),
  }
}

/** An event as the scripts write it: kind, public id, token, lock key, body. Null if it is not understood. */
export function readEvent(
  text: string,
  nameOf: (key: string) => string | null,
): { readonly event: ToldEvent; readonly ttlMs: number } | null {
  if (text === '') return null
  const [kind, id = '', token = '', key = '', body] = (JSON.parse(text) as readonly unknown[]).map(String)
  const name = nameOf(key)
  if (name === null) return null
  const { holder, owner, ttlMs } = readClaim(id, body)
  const event = { kind: kind as WatchEventKind, name, id, holder, owner, token: readToken(token) }
  return { event: toldEvent(event), ttlMs }
}

function list(reply: RedisReply | undefined): readonly RedisReply[] {
  return Array.isArray(reply) ? reply : []
}
