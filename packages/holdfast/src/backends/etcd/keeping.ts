/**
 * What prolongs a session: a keep-alive of its lease, and after its answer a linearizable read.
 *
 *   keep-alive ──answer, term t──▶ read ──term t, session there──▶ prolonged, since before the keep-alive was sent
 *                                  read ──session not there──▶ gone
 *                                  read ──another term, or no lease──▶ unknown
 *
 * A leader that was stopped and has been replaced answers keep-alives that its successor never sees (T63). The answer carries the
 * term that the member knew before it renewed the lease. The read is answered only by a leader that a majority follows. If
 * its term is the same, that leader has renewed the lease.
 */
import { type Instant, instantOf } from '../../base/clock.ts'
import { created, get, methods, onCondition } from '../../clients/etcd/index.ts'
import type { Call } from '../../spi.ts'
import { type Connection, unavailable } from './connection.ts'
import type { SessionRef } from './statements.ts'

/** Since when it lives. Null: the session has gone. */
export async function prolong(
  connection: Connection,
  { lease, revision }: Pick<SessionRef, 'lease' | 'revision'>,
  call: Call,
): Promise<Instant | null> {
  const { client, clock, keys, lifetime } = connection
  lifetime.begin(call)
  const since = instantOf(clock)
  const kept = await client.ask(methods.leaseKeepAlive, { ID: lease }, call)
  const isThere = created(keys.session(lease), revision)
  // A transaction that reads nothing is not linearizable: any member answers it by itself.
  const read = await connection.transact(onCondition([isThere], [get(keys.session(lease))]), call)
  if (!read.succeeded) return null
  if (kept.TTL <= 0 || read.header?.raft_term !== kept.header?.raft_term)
    throw unavailable('the leader has changed, and may not know of the keep-alive', 'unknown')
  return since
}
