/** Runs a body under a lease, and tells apart what the body did from what became of the lease (G11). */
import { conclude, settle } from '../base/lease-body.ts'
import type { LeaseBase } from '../base/types.ts'
import type { LeaseRecord } from './lease.ts'
import { bodyChannel, traced } from './tracing.ts'

export interface RunningBody<T> {
  readonly outcome: Promise<T>
  /** Resolves when the body itself has ended, however it ended. */
  readonly finished: Promise<void>
}

export function runWithLease<L extends LeaseBase, T>(
  record: LeaseRecord,
  lease: L,
  body: (lease: L) => Promise<T> | T,
): RunningBody<T> {
  const running = settle(() =>
    bodyChannel.hasSubscribers ? traced(bodyChannel, record.about, async () => body(lease)) : body(lease),
  )
  return { finished: running.then(() => {}), outcome: running.then((ended) => conclude<T>(lease, ended)) }
}
