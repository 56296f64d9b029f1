/**
 * What prolongs a lease: a keep-alive, and after its answer a linearizable read.
 *
 *   keep-alive ──answer, term t──▶ read ──term t──▶ prolonged, since before the keep-alive was sent
 *                                  read ──another term, or no lease──▶ not known
 *
 * A leader that was stopped and has been replaced answers keep-alives that its successor never sees (T63). The answer carries the
 * term that the member knew before it renewed the lease. The read is answered only by a leader that a majority follows. If
 * its term is the same, that leader has renewed the lease.
 */
import type { Call } from '../../spi.ts'
import type { EtcdClient } from './client.ts'
import { methods, type TxnRequest, type TxnResponse } from './messages.ts'

export async function prolongLease(
  client: EtcdClient,
  ID: number,
  read: TxnRequest,
  call: Call,
): Promise<{ readonly isProlonged: boolean; readonly response: TxnResponse }> {
  const kept = await client.ask(methods.leaseKeepAlive, { ID }, call)
  const response = await client.ask(methods.txn, read, call)
  const isProlonged = kept.TTL > 0 && response.header?.raft_term === kept.header?.raft_term
  return { isProlonged, response }
}
