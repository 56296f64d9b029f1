/**
 * What an operator may do to a name. Each call reads the name, and then writes on condition of the revisions that it has read. So
 * a copy that arrives late finds another revision, and does nothing (T74, T78). etcd has no clock to compare with, so a
 * call that has expired is refused before its write is sent.
 */
import { UnsupportedError } from '../../base/errors.ts'
import {
  created,
  getAll,
  none,
  onCondition,
  put,
  remove,
  unchangedSince,
  written,
} from '../../clients/etcd/index.ts'
import { operatorCallExpired } from '../../kit/backend-kit.ts'
import { weightInUse } from '../../kit/ordered-store.ts'
import type { CapacityChange, OperatorCall } from '../../spi.ts'
import { BACKEND, type Connection } from './connection.ts'
import type { Found } from './records.ts'

/** So many writes and comparisons fit into one transaction. */
const MAX_SESSIONS = 100

export async function forceRelease(
  connection: Connection,
  name: string,
  ids: readonly string[],
  reason: string,
  call: OperatorCall,
): Promise<number> {
  const { claims } = await look(connection, name, call)
  const meant = claims.filter(({ granted, id }) => granted && ids.includes(id))
  const released = await Promise.all(
    meant.map(async ({ key, revision, lease, attempt }) => {
      const record = JSON.stringify({ reason: 'force-released', detail: reason })
      const mark = put(connection.keys.mark(lease, attempt), record, lease)
      const request = onCondition([written(key, revision)], [remove(key), mark])
      return (await connection.commit(name, () => request, call)).branch === 'first'
    }),
  )
  return released.filter(Boolean).length
}

/** The new capacity is written on the lease of every session that has claims, so it lasts as long as the last of them. */
export async function resize(
  connection: Connection,
  name: string,
  { from, to }: CapacityChange,
  call: OperatorCall,
): Promise<'resized' | 'in-use' | 'changed'> {
  const { keys } = connection
  const { claims, capacity, revision } = await look(connection, name, call)
  const [oldest] = claims
  if (oldest?.kind !== 'p' || capacity !== from) return 'changed'
  const heaviest = Math.max(...claims.map(({ weight }) => weight))
  if (Math.max(weightInUse(claims, from), heaviest) > to) return 'in-use'
  // While one claim of a session is there, its lease is.
  const witnesses = [...new Map(claims.map((claim) => [claim.lease, claim])).values()]
  if (witnesses.length > MAX_SESSIONS)
    throw new UnsupportedError(
      `etcd cannot resize a semaphore while more than ${MAX_SESSIONS} sessions hold or wait for it.`,
    )
  const puts = witnesses.map(({ lease }) => put(keys.capacity(name, lease), String(to), lease))
  const compare = [
    unchangedSince(keys.part(name, 'c'), revision),
    unchangedSince(keys.part(name, 'p', 'w'), revision),
    ...witnesses.map(({ key, order }) => created(key, Number(order))),
  ]
  const { succeeded } = await connection.transact(onCondition(compare, puts), call)
  return succeeded ? 'resized' : 'changed'
}

export async function forget(
  connection: Connection,
  name: string,
  data: string,
  call: OperatorCall,
): Promise<'forgotten' | 'in-use' | 'changed'> {
  const { keys } = connection
  const found = await look(connection, name, call)
  if (found.claims.length > 0) return 'in-use'
  if (found.data?.data !== data) return 'changed'
  const key = keys.data(name)
  const compare = [none(keys.part(name, 'p', 'w')), written(key, found.dataRevision)]
  const { succeeded } = await connection.transact(onCondition(compare, [remove(key)]), call)
  return succeeded ? 'forgotten' : 'changed'
}

async function look(connection: Connection, name: string, call: OperatorCall): Promise<Found> {
  const found = await connection.read([getAll(connection.keys.name(name))], call)
  if (connection.clock.wallMs() >= call.notAfterMs) throw operatorCallExpired(BACKEND)
  return found
}
