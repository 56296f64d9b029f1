import type { Call } from '../../../spi.ts'
import type { EtcdClient } from './client.ts'
import { type KeyValue, methods, type Operation } from './messages.ts'
import { always, kvsOf } from './transactions.ts'

/** By etcd's default for `--max-txn-ops`. */
export const READS_AT_ONCE = 128

/**
 * As many linearizable reads as it takes; the revision is that of the first. etcd takes a transaction within a transaction for a
 * write: it would go through the log of Raft, which takes 1.5 MiB at most.
 */
export async function readAll(client: EtcdClient, operations: readonly Operation[], call: Call) {
  const kvs: KeyValue[] = []
  let revision = 0
  for (let at = 0; at < operations.length; at += READS_AT_ONCE) {
    const some = operations.slice(at, at + READS_AT_ONCE)
    const response = await client.ask(methods.txn, always(some), call)
    kvs.push(...kvsOf(response))
    revision ||= response.header?.revision ?? 0
  }
  return { kvs, revision }
}
