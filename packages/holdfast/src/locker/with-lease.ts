/** Runs a body under a lease, and tells apart what the body did from what became of the lease (G11). */
import type { AboutLease } from '../base/events.ts'
import type { Fence } from '../base/fence.ts'
import { conclude, settle } from '../base/lease-body.ts'
import type { BackendInfo, LeaseBase, Mode } from '../base/types.ts'
import { bodyChannel, traced } from './tracing.ts'

type Engine = Pick<BackendInfo, 'name' | 'namespace'>

export interface RunningBody<T> {
  readonly outcome: Promise<T>
  /** Resolves when the body itself has ended, however it ended. */
  readonly finished: Promise<void>
}

export function runWithLease<L extends LeaseBase, T>(
  lease: L,
  body: (lease: L) => Promise<T> | T,
  engine: Engine,
  mode: Mode = 'exclusive',
): RunningBody<T> {
  const running = settle(() =>
    bodyChannel.hasSubscribers
      ? traced(bodyChannel, aboutLease(lease, engine, mode), async () => body(lease))
      : body(lease),
  )
  return { finished: running.then(() => {}), outcome: running.then((ended) => conclude<T>(lease, ended)) }
}

function aboutLease(
  lease: LeaseBase & { readonly fence?: Fence },
  { name: backend, namespace }: Engine,
  mode: Mode,
): AboutLease {
  const { name, holder, id, fence } = lease
  return { backend, namespace, name, holder, id, token: fence?.token ?? null, mode }
}
