/**
 * Leases, with ids of our choice. What prolongs one: a keep-alive, and after its answer a linearizable read.
 *
 *   keep-alive ──answer, term t──▶ read ──term t──▶ prolonged, since before the keep-alive was sent
 *                                  read ──another term, or no lease──▶ not known
 *
 * A leader that was stopped and has been replaced answers keep-alives that its successor never sees (T63, resumed old leaders). The answer carries the
 * term that the member knew before it renewed the lease. The read is answered only by a leader that a majority follows. If
 * its term is the same, that leader has renewed the lease.
 */
import { createHash } from 'node:crypto'
import type { Call } from '../../../spi.ts'
import type { EtcdClient } from './client.ts'
import { isLeaseNotFound, isLeaseTaken } from './failures.ts'
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

/** At most 52 bits, and never 0. */
export function leaseIdOf(text: string): number {
  const hash = createHash('sha256').update(text).digest()
  return hash.readUIntBE(0, 6) * 16 + ((hash[6] ?? 0) & 15) + 1
}

/**
 * The seconds that were granted: at least as many, and whole ones. Null: there is such a lease already, perhaps because this was
 * asked again.
 */
export async function grantLease(
  client: EtcdClient,
  ID: number,
  ttlMs: number,
  call: Call,
): Promise<number | null> {
  try {
    const request = { ID, TTL: Math.ceil(ttlMs / 1_000) }
    return (await client.ask(methods.leaseGrant, request, call, () => {})).TTL
  } catch (error) {
    if (isLeaseTaken(error)) return null
    throw error
  }
}

/** Rounded up to whole seconds; 0 if it has ended. etcd tells them rounded down. */
export async function leaseLeftMs(client: EtcdClient, ID: number, call: Call): Promise<number> {
  const { TTL } = await client.ask(methods.leaseTimeToLive, { ID }, call)
  return (TTL + 1) * 1_000
}

/** Deletes all keys on it. */
export async function revokeLease(client: EtcdClient, ID: number, call: Call): Promise<void> {
  try {
    await client.ask(methods.leaseRevoke, { ID }, call)
  } catch (error) {
    if (!isLeaseNotFound(error)) throw error
  }
}
