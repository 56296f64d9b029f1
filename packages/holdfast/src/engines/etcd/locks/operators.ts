/**
 * What an operator may do to a name. Each call reads the name, and then writes on condition of the revisions that it has read. So
 * a copy that arrives late finds another revision, and does nothing (T74, T78). etcd has no clock to compare with, so a
 * call that has expired is refused before its write is sent.
 */
import { UnsupportedError } from '../../../base/errors.ts'
import { operatorCallExpired } from '../../../kit/backend-kit.ts'
import { weightInUse } from '../../../kit/ordered-store.ts'
import type { CapacityChange, OperatorCall } from '../../../spi.ts'
import * as etcd from '../client/index.ts'
import { BACKEND, type Connection } from './connection.ts'
import { modes } from './keys.ts'
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
  const record = JSON.stringify({ reason: 'force-released', detail: reason })
  let count = 0
  for (const { key, revision, lease, attempt, granted, id } of claims) {
    if (!granted || !ids.includes(id)) continue
    const mark = etcd.put(connection.keys.mark(lease, attempt), record, lease)
    const release = etcd.onCondition([etcd.written(key, revision)], [etcd.remove(key), mark])
    if ((await connection.transact(release, call)).succeeded) count++
  }
  return count
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
  if (claims[0]?.mode !== 'permits' || capacity !== from) return 'changed'
  if (Math.max(weightInUse(claims, from), ...claims.map(({ weight }) => weight)) > to) return 'in-use'
  // While one claim of a session is there, its lease is.
  const witnesses = [...new Map(claims.map((claim) => [claim.lease, claim])).values()]
  if (witnesses.length > MAX_SESSIONS)
    throw new UnsupportedError(
      `etcd cannot resize a semaphore while more than ${MAX_SESSIONS} sessions hold or wait for it.`,
    )
  const unchanged = [keys.part(name, 'capacity'), keys.part(name, 'permits')]
  const compare = [
    ...unchanged.map((range) => etcd.unchangedSince(range, revision)),
    ...witnesses.map(({ key, order }) => etcd.created(key, Number(order))),
  ]
  const puts = witnesses.map(({ lease }) => etcd.put(keys.of(name, 'capacity', lease), String(to), lease))
  const { succeeded } = await connection.transact(etcd.onCondition(compare, puts), call)
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
  const cell = keys.data(name)
  const unused = modes.map((mode) => etcd.none(keys.part(name, mode)))
  const compare = [...unused, etcd.written(cell, found.data.revision)]
  const { succeeded } = await connection.transact(etcd.onCondition(compare, [etcd.remove(cell)]), call)
  return succeeded ? 'forgotten' : 'changed'
}

async function look(connection: Connection, name: string, call: OperatorCall): Promise<Found> {
  const found = await connection.read([etcd.getAll(connection.keys.name(name))], call)
  if (connection.clock.wallMs() >= call.notAfterMs) throw operatorCallExpired(BACKEND)
  return found
}
